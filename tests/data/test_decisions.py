from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bsdr_torch.data.decisions import UNRECORDED, DecisionTable, windows
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.prepared import read_prepared
from bsdr_torch.rationality import POPULATION


@pytest.fixture(scope="module")
def circuit(prepared_2020: Path) -> PackedGames:
    """Two games of 120 steps; in the second the seat of player 1 is an AI's."""
    return read_prepared(prepared_2020).kitchens["counter_circuit"]


@pytest.fixture(scope="module")
def gappy(prepared_2020: Path) -> PackedGames:
    """A game of 118 steps, where 40 and 41 are missing, and one of 70; time starts at 1."""
    return read_prepared(prepared_2020).kitchens["asymmetric_advantages_tomato"]


def table_of(games: PackedGames, history: int = 5, first_rollout: int = 0) -> DecisionTable:
    return DecisionTable.of(games, {human: number for number, human in enumerate(games.humans)}, history, first_rollout)


def test_a_decision_holds_what_is_recorded_for_it(circuit: PackedGames) -> None:
    everything = table_of(circuit, first_rollout=10).gather(torch.arange(2 * len(circuit)))
    for number in (0, 1, 77, 240, 300, 479):
        row, seat = number // 2, number % 2
        game = int(circuit.game[row])
        assert torch.equal(everything.states[number], circuit.states[row])
        assert everything.actions[number] == circuit.actions[row, seat]
        assert everything.seats[number] == seat
        assert everything.times[number] == circuit.time[row]
        assert everything.rollouts[number] == 10 + 2 * game + seat
        human = circuit.humans.index(circuit.players[game][seat]) if circuit.is_human[game][seat] else POPULATION
        assert everything.humans[number] == human


@pytest.mark.parametrize("games", ["circuit", "gappy"])
def test_history_is_what_was_done_at_the_times_before(games: str, request: pytest.FixtureRequest) -> None:
    recorded: PackedGames = request.getfixturevalue(games)
    action_at = {
        (int(game), int(time)): pair
        for game, time, pair in zip(recorded.game, recorded.time, recorded.actions.tolist(), strict=True)
    }
    everything = table_of(recorded).gather(torch.arange(2 * len(recorded)))
    missing = (UNRECORDED, UNRECORDED)
    for number in range(2 * len(recorded)):
        game, time, seat = int(recorded.game[number // 2]), int(everything.times[number]), number % 2
        own = [action_at.get((game, time - lag), missing)[seat] for lag in range(1, 6)]
        assert everything.history[number].tolist() == own
        assert everything.partner_last[number] == action_at.get((game, time - 1), missing)[1 - seat]


def test_a_game_begins_with_no_history(circuit: PackedGames) -> None:
    first = table_of(circuit).gather(2 * circuit.first)
    assert (first.history == UNRECORDED).all()
    assert (first.partner_last == UNRECORDED).all()


@pytest.mark.parametrize("step", [0, 1, 50, 119, 120, 180])
def test_nothing_recorded_after_a_step_is_in_its_row_but_the_label(circuit: PackedGames, step: int) -> None:
    """Everything from the actions of `step` on is replaced; the rows up to it stay, but for its own label."""
    later = torch.arange(len(circuit)) > step
    acted = torch.arange(len(circuit)) >= step
    other = replace(
        circuit,
        actions=torch.where(acted[:, None], (circuit.actions + 1) % 6, circuit.actions),
        states=torch.where(later[:, None], circuit.states.flip(0), circuit.states),
        rewards=circuit.rewards + acted,
        agrees=torch.zeros_like(circuit.agrees),
    )
    rows = torch.arange(2 * step + 2)
    before, after = table_of(circuit).gather(rows), table_of(other).gather(rows)
    for field in ("states", "humans", "seats", "history", "partner_last", "rollouts", "times"):
        assert torch.equal(getattr(before, field), getattr(after, field)), field
    assert torch.equal(before.actions[: 2 * step], after.actions[: 2 * step])
    assert (before.actions[2 * step :] != after.actions[2 * step :]).all()


def test_history_can_be_left_out(circuit: PackedGames) -> None:
    assert table_of(circuit, history=0).gather(torch.arange(7)).history.shape == (7, 0)


def test_windows_cover_the_chosen_steps_of_people_once(circuit: PackedGames) -> None:
    chosen = torch.rand(len(circuit), generator=torch.Generator().manual_seed(0)) < 0.8
    first, length = windows(circuit, chosen, 7)
    covered = torch.cat([f + 2 * torch.arange(int(n)) for f, n in zip(first, length, strict=True)])
    human = torch.tensor(circuit.is_human)[circuit.game].view(-1)
    expected = (chosen.repeat_interleave(2) & human).nonzero()[:, 0]
    assert torch.equal(covered.sort().values, expected)
    assert int(length.max()) == 7
    last = (first // 2) + length - 1
    assert torch.equal(circuit.game[first // 2], circuit.game[last])


def test_whole_games_are_the_default_window(circuit: PackedGames) -> None:
    first, length = windows(circuit, torch.ones(len(circuit), dtype=torch.bool), None)
    assert first.tolist() == [0, 1, 240]  # anna, bert, and the person who played with an AI
    assert length.tolist() == [120, 120, 120]


def test_a_window_is_its_steps_padded_with_the_last_and_keeps_the_true_history(circuit: PackedGames) -> None:
    table = table_of(circuit)
    chosen = torch.ones(len(circuit), dtype=torch.bool)
    first, length = windows(circuit, chosen, 50)
    batch = table.gather_windows(first[:6], length[:6])
    assert batch.mask.sum(1).tolist() == [50, 50, 50, 50, 20, 20]
    for window in range(6):
        index = first[window] + 2 * torch.arange(50).clamp(max=int(length[window]) - 1)
        alone = table.gather(index)
        for field in alone._fields[1:]:
            assert torch.equal(getattr(batch.steps, field)[window], getattr(alone, field)), field
    # The second window of the first player begins with the actions that end the first.
    assert batch.steps.history[2, 0].tolist() == circuit.actions[45:50, 0].flip(0).tolist()


def test_no_steps_make_no_windows(circuit: PackedGames) -> None:
    first, length = windows(circuit, torch.zeros(len(circuit), dtype=torch.bool), 10)
    assert len(first) == len(length) == 0
