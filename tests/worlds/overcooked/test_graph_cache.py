from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import KitchenGraph, Limits, graph_cache, load_graph, load_layout, start_states, step
from bsdr_torch.worlds.overcooked.graph_cache import graph_folder, graph_key

LAYOUT = load_layout("forced_coordination")


def same(one: KitchenGraph, other: KitchenGraph) -> bool:
    pairs = [(one.states, other.states), (one.next_state, other.next_state), (one.start, other.start)]
    if one.chance is not None or other.chance is not None:
        pairs.append((one.chance, other.chance))
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("timers", ["exact", "cooking"])
def test_a_graph_is_enumerated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timers: str) -> None:
    first = load_graph(LAYOUT, Limits(timers=timers), folder=tmp_path)
    monkeypatch.setattr(graph_cache, "enumerate_kitchen", None)
    second = load_graph(LAYOUT, Limits(timers=timers), folder=tmp_path)
    assert same(first, second)
    assert second.index(first.states).tolist() == list(range(300))
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "other"])
def test_a_damaged_file_is_made_again_with_a_notice(tmp_path: Path, damage: str) -> None:
    first = load_graph(LAYOUT, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes({"empty": b"", "cut": content[:-999], "flipped": content, "text": b"states"}.get(damage, b""))
    if damage == "other":
        with path.open("wb") as file:
            torch.save({}, file)
    with pytest.warns(UserWarning, match=r"is damaged .* enumerated again and the file replaced"):
        assert same(load_graph(LAYOUT, folder=tmp_path), first)
    assert same(load_graph(LAYOUT, folder=tmp_path), first)


def test_the_key_knows_all_that_a_graph_depends_on() -> None:
    starts = start_states(LAYOUT)
    later = step(LAYOUT, starts, torch.tensor([[1, 1]]))[0]
    others = [
        (replace(LAYOUT, rules=2020), Limits(), starts),
        (replace(LAYOUT, cook_times=(5,) * 10), Limits(), starts),
        (replace(LAYOUT, counters=LAYOUT.counters[1:]), Limits(), starts),
        (LAYOUT, Limits(max_objects=1), starts),
        (LAYOUT, Limits(timers="cooking"), starts),
        (LAYOUT, Limits(), later),
    ]
    key = graph_key(LAYOUT, Limits(), starts)
    assert len({key, *(graph_key(*other) for other in others)}) == len(others) + 1
    assert graph_key(replace(LAYOUT, name="random0"), Limits(max_states=500), starts) == key


def test_a_kept_graph_respects_the_budget(tmp_path: Path) -> None:
    load_graph(LAYOUT, folder=tmp_path)
    with pytest.raises(InputError, match=r"has 300 states .* more than max_states = 299"):
        load_graph(LAYOUT, Limits(max_states=299), folder=tmp_path)


def test_a_folder_that_cannot_be_written_costs_only_a_warning(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("not a folder")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert load_graph(LAYOUT, folder=tmp_path / "taken").num_states == 300


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(graph_cache.np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_graph(LAYOUT, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert graph_folder() == tmp_path / "bsdr_torch" / "kitchens"
