"""Claims about enumerated kitchens. All counts, some minutes: pytest tests/worlds/overcooked/test_graph.py --full"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    DIRECTIONS,
    INTERACT,
    JOINT_ACTIONS,
    STAY,
    KitchenGraph,
    Layout,
    Limits,
    counter_objects,
    enumerate_kitchen,
    graph,
    happened,
    load_layout,
    pot_ticks,
    start_states,
    step,
)
from bsdr_torch.worlds.overcooked.key_index import KeyIndex
from bsdr_torch.worlds.overcooked.layouts import usable_counters

# Found by a program that shares nothing with this one; and two smaller counts, of cramped_room and forced_coordination.
LARGE_COUNTS = {
    ("asymmetric_advantages", 0): 1_553_270,
    ("coordination_ring", 0): 2_702_726,
    ("counter_circuit_o_1order", 0): 7_490_070,
    ("cramped_room", 1): 2_016_316,
    ("forced_coordination", 1): 4_118_106,
}


@pytest.fixture(scope="module")
def cramped_room() -> KitchenGraph:
    return enumerate_kitchen(load_layout("cramped_room"))


@pytest.fixture(scope="module")
def cramped_room_without_timers() -> KitchenGraph:
    return enumerate_kitchen(load_layout("cramped_room"), Limits(timers="cooking"))


def closet(rules: int = 2019) -> Layout:
    """The smallest kitchen in which two can meet at a counter."""
    grid = ("XPDX", "O  S", "XXXX")
    return Layout("closet", grid, ((1, 1), (2, 1)), usable_counters(grid), rules, cook_times=(3,) * 10)


def corner() -> Layout:
    """Two people on both sides of a counter, who can hand things over in one step."""
    grid = ("XXXXX", "O X P", "XDXSX")
    return Layout("corner", grid, ((1, 1), (3, 1)), usable_counters(grid), 2019, cook_times=(1,) * 10)


def test_as_many_states_as_an_independent_program_finds(cramped_room: KitchenGraph) -> None:
    assert cramped_room.num_states == 125_266
    assert enumerate_kitchen(load_layout("forced_coordination")).num_states == 300


@pytest.mark.parametrize(("name", "max_objects"), LARGE_COUNTS)
def test_as_many_states_in_larger_kitchens(name: str, max_objects: int, full: bool) -> None:
    if not full:
        pytest.skip("minutes: with --full only")
    assert enumerate_kitchen(load_layout(name), Limits(max_objects)).num_states == LARGE_COUNTS[name, max_objects]


@pytest.mark.parametrize(
    ("layout", "max_objects"),
    [(closet(), 0), (closet(), 1), (closet(), 2), (closet(2020), 1), (corner(), 0)],
)
def test_the_graph_is_what_the_definition_says(layout: Layout, max_objects: int) -> None:
    found = enumerate_kitchen(layout, Limits(max_objects))
    following = search_by_definition(layout, max_objects)
    rows = [tuple(row) for row in found.states.tolist()]
    assert len(set(rows)) == len(rows)
    assert set(rows) == following.keys()
    for row, numbers in zip(rows, found.next_state.squeeze(2).tolist(), strict=True):
        assert [rows[number] for number in numbers] == following[row]


def test_two_may_hand_over_a_thing_in_one_step_though_none_may_lie() -> None:
    layout = corner()
    found = enumerate_kitchen(layout, Limits(max_objects=0))
    assert not counter_objects(layout, found.states).any()
    # Player 0 takes onions and cannot leave; only a thing handed over lets player 1 fill the pot.
    assert (pot_ticks(layout, found.states) > 0).any()


def test_joint_actions_lead_where_the_game_leads(cramped_room: KitchenGraph) -> None:
    layout = cramped_room.layout
    number = torch.randint(cramped_room.num_states, (2000,), generator=torch.Generator().manual_seed(0))
    rewards, events = cramped_room.outcomes(number)
    for joint, actions in enumerate(JOINT_ACTIONS):
        after, reward, event = step(layout, cramped_room.states[number], torch.tensor(actions).expand(2000, 2))
        inside = ~counter_objects(layout, after).any(dim=1)
        assert inside.float().mean() > 0.5
        assert torch.equal(cramped_room.states[cramped_room.next_state[number, joint, 0].long()][inside], after[inside])
        assert torch.equal(rewards[inside, joint], reward[inside])
        assert torch.equal(events[inside, joint], event[inside])
    assert not any(happened(events, f"{thing}_drop").any() for thing in ("onion", "dish", "soup"))


def test_states_are_found_by_their_rows(cramped_room: KitchenGraph) -> None:
    order = torch.randperm(cramped_room.num_states, generator=torch.Generator().manual_seed(0))[:5000]
    assert torch.equal(cramped_room.index(cramped_room.states[order]), order)
    littered = cramped_room.states[order].clone()
    littered[:2500, -1] = 1
    assert (cramped_room.index(littered)[:2500] == -1).all()
    assert torch.equal(cramped_room.index(littered)[2500:], order[2500:])
    assert cramped_room.share_outside(littered) == 0.5


def test_states_of_another_kitchen_are_refused(cramped_room: KitchenGraph) -> None:
    with pytest.raises(InputError, match=r"a state of cramped_room is a row of .* another layout"):
        cramped_room.index(start_states(load_layout("coordination_ring")))
    with pytest.raises(InputError, match="the share of no states"):
        cramped_room.share_outside(cramped_room.states[:0])


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("timers", ["exact", "cooking"])
def test_the_partner_becomes_a_part_of_the_world(seat: int, timers: str) -> None:
    found = enumerate_kitchen(closet(), Limits(1, timers))
    S = found.num_states
    policy = torch.rand((S, 6), generator=torch.Generator().manual_seed(seat), dtype=torch.float64)
    policy /= policy.sum(dim=1, keepdim=True)
    mdp = found.mdp(seat, policy)
    C = found.next_state.shape[2]
    assert mdp.next_state.shape == (S, 6, 6 * C)
    assert mdp.probability.shape == (S, 1, 6 * C)
    chance = torch.ones((S, 1)) if found.chance is None else found.chance
    for ego in range(6):
        expected = torch.zeros((S, S), dtype=torch.float64)
        for partner in range(6):
            joint = 6 * ego + partner if seat == 0 else 6 * partner + ego
            for c in range(C):
                share = policy[:, partner] * chance[:, c].double()
                expected[torch.arange(S), found.next_state[:, joint, c].long()] += share
        got = torch.zeros((S, S), dtype=torch.float64)
        got.scatter_add_(1, mdp.next_state[:, ego].long(), mdp.probability[:, 0].double())
        torch.testing.assert_close(got, expected)
    assert mdp.start.tolist() == found.start.tolist()


@pytest.mark.parametrize("seat", [0, 1])
def test_a_cut_keeps_the_likeliest_actions_of_the_partner(seat: int) -> None:
    found = enumerate_kitchen(closet())
    policy = torch.tensor([0.1, 0.2, 0.05, 0.05, 0.4, 0.2 - 1e-4]).expand(found.num_states, 6)
    policy = policy / policy.sum(dim=1, keepdim=True)
    cut = found.mdp(seat, policy, top_k=2)
    whole = found.mdp(seat, policy)
    torch.testing.assert_close(cut.probability[:, 0], torch.tensor([2 / 3, 1 / 3]).expand(found.num_states, 2))
    assert torch.equal(cut.next_state, whole.next_state[:, :, [STAY, 1]])
    assert torch.equal(found.mdp(seat, policy, top_k=6).next_state, whole.next_state)


def test_bad_requests_for_an_mdp_are_refused() -> None:
    found = enumerate_kitchen(closet())
    uniform = torch.full((found.num_states, 6), 1 / 6)
    with pytest.raises(InputError, match="seat must be 0 or 1, got 2"):
        found.mdp(2, uniform)
    with pytest.raises(InputError, match=rf"each of {found.num_states} states, got shape \(5, 6\)"):
        found.mdp(0, uniform[:5])
    with pytest.raises(InputError, match="top_k must be from 1 to 6, got 0"):
        found.mdp(0, uniform, top_k=0)


def test_one_state_of_cooking_lasts_as_long_on_average_as_the_real_thing(
    cramped_room_without_timers: KitchenGraph,
) -> None:
    found = cramped_room_without_timers
    layout = found.layout
    assert found.chance is not None
    ticks = pot_ticks(layout, found.states).squeeze(1)
    assert sorted(set(ticks.tolist())) == [-1, 1, 20]
    torch.testing.assert_close(found.chance.sum(dim=1), torch.ones(found.num_states))
    cooks = ticks == 1
    assert (found.chance[~cooks, 1] == 0).all()
    # The game has tick 1 when the third onion is in and tick 20 after another 19 steps.
    torch.testing.assert_close(1 / found.chance[cooks, 1], torch.full((int(cooks.sum()),), 19.0))
    waits = found.next_state[cooks, 6 * STAY + STAY]
    assert (waits[:, 0] == cooks.nonzero().squeeze(1)).all()
    assert (ticks[waits[:, 1].long()] == 20).all()


def test_one_state_of_cooking_stands_for_all_ticks(
    cramped_room: KitchenGraph, cramped_room_without_timers: KitchenGraph
) -> None:
    exact, found = cramped_room, cramped_room_without_timers
    layout = found.layout
    number = found.index(exact.states)
    assert set(number.tolist()) == set(range(found.num_states))
    cooking = found.states[number][(pot_ticks(layout, exact.states) == 7).squeeze(1)]
    assert (pot_ticks(layout, cooking) == 1).all()


def test_the_graph_does_not_depend_on_how_many_states_are_expanded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = enumerate_kitchen(closet(), Limits(1))
    monkeypatch.setattr(graph, "_ROWS", 7)
    pieces = enumerate_kitchen(closet(), Limits(1))
    assert torch.equal(whole.states, pieces.states)
    assert torch.equal(whole.next_state, pieces.next_state)


def test_two_states_with_one_key_are_an_error_and_not_a_wrong_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "hash_states", lambda states: states[..., 0].long() * 0)
    graph._moves.cache_clear()
    with pytest.raises(RuntimeError, match="two different states have the same 64-bit key"):
        enumerate_kitchen(closet())
    graph._moves.cache_clear()


def test_starts_may_be_given_and_count_once_each() -> None:
    layout = closet()
    later = step(layout, start_states(layout), torch.tensor([[3, 5]]))[0]
    starts = torch.cat([start_states(layout), later, later])
    found = enumerate_kitchen(layout, starts=starts)
    assert torch.equal(found.states[:2], starts[:2])
    assert found.start.tolist() == [0.5, 0.5] + [0.0] * (found.num_states - 2)


def test_limits_that_cannot_be_kept_say_so() -> None:
    layout = load_layout("cramped_room")
    with pytest.raises(InputError, match=r"cramped_room has more than 1,000 states .* raise max_states, allow fewer"):
        enumerate_kitchen(layout, Limits(max_states=1000))
    littered = start_states(layout)
    littered[0, -1] = 1
    with pytest.raises(InputError, match="start 0 has 1 objects on counters, and max_objects is 0"):
        enumerate_kitchen(layout, starts=littered)
    for arguments, message in (
        ({"max_objects": -1}, "max_objects must be a whole number"),
        ({"timers": "coarse"}, 'timers must be "exact" or "cooking", got \'coarse\''),
        ({"max_states": 0}, "max_states must be from 1"),
    ):
        with pytest.raises(InputError, match=message):
            Limits(**arguments)


@given(st.lists(st.lists(st.integers(-40, 40), max_size=30), max_size=5), st.sampled_from([0, 20, 40]))
def test_keys_are_numbered_as_they_come(batches: list[list[int]], shift: int) -> None:
    index, numbers = KeyIndex(torch.device("cpu")), dict[int, int]()
    for batch in batches:
        # Shifted keys all want the same slot.
        keys = torch.tensor([key << shift for key in batch], dtype=torch.int64)
        before = len(numbers)
        found, fresh = index.add(keys)
        for key in batch:
            numbers.setdefault(key, len(numbers))
        assert found.tolist() == [numbers[key] for key in batch]
        assert [batch[row] for row in fresh.tolist()] == list(numbers)[before:]
    everything = torch.arange(-45, 46) << shift
    assert index.find(everything).tolist() == [numbers.get(key, -1) for key in range(-45, 46)]


def test_many_keys_find_their_numbers_again() -> None:
    keys = torch.randperm(50_000, generator=torch.Generator().manual_seed(0)) * 977
    index = KeyIndex(torch.device("cpu"))
    for some in keys.split(7_000):
        index.add(some)
    assert torch.equal(index.find(keys), torch.arange(50_000, dtype=torch.int32))


def search_by_definition(layout: Layout, max_objects: int) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """The 36 successors of each reachable state, by the definition of the limits, with sets and dicts of rows."""
    start = start_states(layout)

    def play(rows: list[tuple[int, ...]], choices: list[tuple[int, int]]) -> list[tuple[int, ...]]:
        following = step(layout, torch.tensor(rows, dtype=start.dtype), torch.tensor(choices))[0]
        return [tuple(row) for row in following.tolist()]

    def limited(rows: list[tuple[int, ...]], choices: list[tuple[int, int]]) -> list[tuple[int, ...]]:
        """An INTERACT that has to give way becomes STAY, which moves nobody either."""
        both = play(rows, choices)
        only0 = play(rows, [(a0, STAY if a1 == INTERACT else a1) for a0, a1 in choices])
        only1 = play(rows, [(STAY if a0 == INTERACT else a0, a1) for a0, a1 in choices])
        nobody = play(rows, [(STAY if a0 == INTERACT else a0, STAY if a1 == INTERACT else a1) for a0, a1 in choices])
        first_counter = 4 + len(layout.pots)
        return [
            next(row for row in options if sum(thing != 0 for thing in row[first_counter:]) <= max_objects)
            for options in zip(both, only0, only1, nobody, strict=True)
        ]

    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    frontier = [tuple(start[0].tolist())]
    while frontier:
        following = limited([row for row in frontier for _ in JOINT_ACTIONS], list(JOINT_ACTIONS) * len(frontier))
        for number, row in enumerate(frontier):
            found[row] = following[36 * number : 36 * (number + 1)]
        frontier = list(set(following) - found.keys())
    return found


def test_the_kitchens_of_these_tests_are_as_described() -> None:
    layout = corner()
    (x0, y0), (x1, y1) = layout.starts
    shared = {(x0 + dx, y0 + dy) for dx, dy in DIRECTIONS} & {(x1 + dx, y1 + dy) for dx, dy in DIRECTIONS}
    assert shared <= set(layout.counters)
    assert len(shared) == 1
