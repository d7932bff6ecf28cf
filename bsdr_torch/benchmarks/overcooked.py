"""Kitchens: steps, successors, encodings and enumeration per second, against overcooked-ai where it can do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bsdr_torch.benchmarks.measure import Record, Work, cost, processor_seconds
from bsdr_torch.worlds.overcooked import (
    OVERCOOKED_AI_ACTIONS,
    Layout,
    Limits,
    encode_features,
    encode_grid,
    enumerate_kitchen,
    load_layout,
    load_package_layout,
    overcooked_ai_mdp,
    start_states,
    step,
    successors,
    to_overcooked,
)

BATCH = 8192
LAYOUT = "cramped_room"


def benchmark(quick: bool = False) -> Iterator[Record]:
    """The records, one by one as they are measured; `quick` only sees that everything runs.

    All on one thread, as overcooked-ai runs, so that the numbers hold on a machine that others use as well.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _steps(quick)
        yield _successors(quick)
        yield _encodings("encodings_per_second", encode_features, quick)
        yield _encodings("grid_encodings_per_second", encode_grid, quick)
        yield from _enumeration(quick)
    finally:
        torch.set_num_threads(threads)


def number_of_records(quick: bool = False) -> int:
    """How many records `benchmark` yields."""
    return 5 if quick else 7


def _steps(quick: bool) -> Record:
    """Joint steps per second on the same states and actions, one after the other in one run."""
    layout = load_package_layout(LAYOUT)  # by the rules of 2020, the only ones that overcooked-ai knows
    states, actions = visited_states(layout, BATCH), _random_actions(BATCH)
    ours = processor_seconds(lambda: step(layout, states, actions), 3 if quick else 50) / BATCH
    count = 50 if quick else BATCH
    game = overcooked_ai_mdp().OvercookedGridworld.from_layout_name(LAYOUT)
    their_states = to_overcooked(layout, states[:count])
    their_actions = [[OVERCOOKED_AI_ACTIONS[action] for action in joint] for joint in actions[:count].tolist()]

    def play() -> None:
        for state, joint in zip(their_states, their_actions, strict=True):
            game.get_state_transition(state, joint)

    theirs = processor_seconds(play, 1 if quick else 3) / count
    against = f"overcooked-ai's get_state_transition: {theirs * 1e6:.3g} us a step, ours {ours * 1e9:.3g} ns"
    return Record("steps_vs_overcooked_ai", theirs / ours, "x", against)


def _successors(quick: bool) -> Record:
    layout = load_layout(LAYOUT)
    states = visited_states(layout, BATCH)
    seconds = processor_seconds(lambda: successors(layout, states), 2 if quick else 20)
    return Record("successors_per_second", BATCH / seconds, "states/s", f"all 36 successors of each, batch {BATCH}")


def _encodings(name: str, encoding: Callable[[Layout, Tensor, int], Tensor], quick: bool) -> Record:
    layout = load_layout(LAYOUT)
    states = visited_states(layout, BATCH)
    seconds = processor_seconds(lambda: encoding(layout, states, 0), 2 if quick else 20)
    return Record(name, BATCH / seconds, "states/s", f"{encoding.__name__} of one seat, batch {BATCH}")


def _enumeration(quick: bool) -> Iterator[Record]:
    """States per second with no object on counters; time and memory of 2,016,316 states, with one."""
    if quick:
        seconds = processor_seconds(enumeration(0, "forced_coordination"), 1)
        yield Record("enumerated_states_per_second", 300 / seconds, "states/s", "forced_coordination, 300 states")
        return
    small = cost(enumeration, {"max_objects": 0}, {"max_objects": 0}, repeats=3, threads=1)
    yield Record("enumerated_states_per_second", 125_266 / small.seconds, "states/s", f"{LAYOUT}, 125,266 states")
    large = cost(enumeration, {"max_objects": 1}, {"max_objects": 0}, repeats=1, threads=1)
    what = f"{LAYOUT} with one object on counters, 2,016,316 states"
    yield Record("enumeration_time", large.seconds, "s", what)
    yield Record("enumeration_memory", large.megabytes, "MB", what)


def enumeration(max_objects: int, name: str = LAYOUT) -> Work:
    """An enumeration to be measured."""
    layout = load_layout(name)
    return lambda: enumerate_kitchen(layout, Limits(max_objects))


def visited_states(layout: Layout, count: int, steps: int = 200) -> Tensor:
    """`[count, W]`: kitchens after so many random steps."""
    states = start_states(layout, count)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        states, _, _ = step(layout, states, torch.randint(6, (count, 2), generator=generator))
    return states


def _random_actions(count: int) -> Tensor:
    return torch.randint(6, (count, 2), generator=torch.Generator().manual_seed(1))
