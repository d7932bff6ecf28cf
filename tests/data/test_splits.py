from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.prepare import read_and_verify
from bsdr_torch.data.prepared import read_prepared
from bsdr_torch.data.splits import TEST, TRAIN, VALIDATION, split
from bsdr_torch.errors import InputError
from tests.data.simulated_games import play, rows_of, write_csv

Kitchens = dict[str, PackedGames]


@pytest.fixture(scope="module")
def kitchens(prepared_2019: Path) -> Kitchens:
    return read_prepared(prepared_2019).kitchens


@pytest.fixture(scope="module")
def kitchens_2020(tmp_path_factory: pytest.TempPathFactory) -> Kitchens:
    """Nine pairs in two kitchens, and a person whom two of the pairs met."""
    one, other = play("counter_circuit", 1, steps=9)[0], play("cramped_room", 1, steps=9)[0]
    rows = []
    for pair in range(9):
        rows += rows_of(one, f"one {pair}", (f"a{pair}", f"b{pair}")) + rows_of(
            other, f"other {pair}", (f"b{pair}", f"a{pair}")
        )
    rows += rows_of(one, "go-between 1", ("a1", "between")) + rows_of(other, "go-between 2", ("between", "b2"))
    rows += rows_of(one, "with AI", ("a3", "AI"), (True, False))
    return read_and_verify(write_csv(rows, tmp_path_factory.mktemp("people") / "games.csv")).kitchens


def people_of(games: PackedGames, part: torch.Tensor, which: int) -> set[str]:
    chosen = torch.unique(games.game[part == which]).tolist()
    return {p for g in chosen for p, human in zip(games.players[g], games.is_human[g], strict=True) if human}


def test_rollout_trains_on_two_thirds_of_each_game_and_tests_on_the_last_third(kitchens: Kitchens) -> None:
    for name, part in split(kitchens, "rollout").items():
        games = kitchens[name]
        for game, length in enumerate(games.lengths.tolist()):
            parts = part[games.game == game]
            assert torch.equal(parts, parts.sort().values)  # train, then validation, then test
            count = Counter(parts.tolist())
            assert count[TRAIN] + count[VALIDATION] == 2 * length // 3
            assert count[VALIDATION] == pytest.approx(0.15 * (2 * length // 3), abs=1)


def test_human_is_the_official_split_by_pair_within_a_kitchen(kitchens: Kitchens) -> None:
    tested = 0
    for name, part in split(kitchens, "human").items():
        games = kitchens[name]
        official = torch.tensor([official == "test" for official in games.official])[games.game]
        assert torch.equal(part == TEST, official)
        people = [people_of(games, part, which) for which in (TRAIN, VALIDATION, TEST)]
        assert all(people)
        assert not people[0] & people[1]
        assert not people[0] & people[2]
        assert not people[1] & people[2]
        tested += int((part == TEST).sum())
    assert 2 * tested == 88_746


@pytest.mark.parametrize("held_out", ["cramped_room", "counter_circuit_o_1order"])
def test_layout_tests_on_all_of_one_kitchen_and_trains_on_none_of_it(kitchens: Kitchens, held_out: str) -> None:
    for name, part in split(kitchens, "layout", held_out).items():
        assert set(part.tolist()) == ({TEST} if name == held_out else {TRAIN, VALIDATION})


def test_without_an_official_split_nobody_who_tests_has_trained_or_met_one_who_has(kitchens_2020: Kitchens) -> None:
    parts = split(kitchens_2020, "human")
    people = [
        set().union(*(people_of(games, parts[name], which) for name, games in kitchens_2020.items()))
        for which in (TRAIN, VALIDATION, TEST)
    ]
    assert all(people)
    assert not people[0] & people[1]
    assert not people[0] & people[2]
    assert not people[1] & people[2]
    assert len(set().union(*people)) == 19
    connected = {"a1", "b1", "between", "a2", "b2"}
    assert sum(bool(connected & members) for members in people) == 1
    # Eight groups of people, a third of them for the test.
    assert len({person[1:] for person in people[2] - {"between"}} - ({"2"} if "a1" in people[2] else set())) == 3


@pytest.mark.parametrize(("protocol", "held_out"), [("rollout", None), ("human", None), ("layout", "cramped_room")])
def test_validation_is_cut_from_training_alone(kitchens: Kitchens, protocol: str, held_out: str | None) -> None:
    with_it, without = (split(kitchens, protocol, held_out, share) for share in (0.2, 0.0))  # type: ignore[arg-type]
    for name, part in with_it.items():
        assert torch.equal(part == TEST, without[name] == TEST)
        assert not (without[name] == VALIDATION).any()


def test_the_split_does_not_depend_on_the_order_of_games(kitchens: Kitchens) -> None:
    games = kitchens["forced_coordination"]
    order = torch.argsort(-games.game, stable=True)
    turned = PackedGames(
        games.layout,
        *(list(reversed(values)) for values in (games.games, games.players, games.is_human, games.official)),
        game=len(games.games) - 1 - games.game[order],
        **{name: getattr(games, name)[order] for name in ("time", "states", "actions", "rewards", "soups", "agrees")},
    )
    for protocol in ("rollout", "human"):
        before = split({"forced_coordination": games}, protocol)["forced_coordination"]  # type: ignore[arg-type]
        after = split({"forced_coordination": turned}, protocol)["forced_coordination"]  # type: ignore[arg-type]
        assert torch.equal(after, before[order])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layout", None, 0.1), "held_out is the kitchen that tests"),
        (("rollout", "cramped_room", 0.1), "held_out is the kitchen that tests"),
        (("layout", "moon_base", 0.1), "no games on 'moon_base': choose one of cramped_room"),
        (("rollout", None, 1.0), "validation must be a share"),
    ],
)
def test_what_cannot_be_split_is_refused(kitchens: Kitchens, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(kitchens, *arguments)  # type: ignore[arg-type]


def test_people_who_all_met_cannot_be_split_by_person(kitchens_2020: Kitchens) -> None:
    games = kitchens_2020["counter_circuit"]
    one_game = games.select(games.game == 0)
    with pytest.raises(InputError, match="use the protocol rollout"):
        split({"counter_circuit": one_game}, "human")
