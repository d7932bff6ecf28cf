"""Predictions of people in kitchens per minute, against asking for one state at a time."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.benchmarks.data import DEFAULT_FOLDER
from bsdr_torch.benchmarks.measure import Record, processor_seconds
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepare import prepare
from bsdr_torch.kitchens.engines import Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens

DECISIONS = 32768  # of each kitchen at most, as they follow one another in games
SEEN = 400


def benchmark(quick: bool = False, folder: Path | str | None = None) -> Iterator[Record]:
    """Decisions per minute in all kitchens of 2019, on one thread and on all; and how long it takes to adapt.

    Args:
        quick: measure little, to see that it works.
        folder: of the prepared 2019 set; by default datasets/mturk_2019, or a temporary one if that is not there.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            if folder is None:
                folder = DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else Path(temporary) / "mturk_2019"
            prepare("mturk_2019", folder)
            data = KitchenPeople(str(folder))
        # How good they are has nothing to do with how fast they are, so they are not trained.
        people = data.specs, data.humans, data.named
        planner, cloning = KitchenModel(*people), Cloning(*people, hidden=[256, 256], history=8, identity=True)
        yield from _speed("KitchenModel", planner, data, quick)
        torch.set_num_threads(threads)
        yield _on_all_threads(planner, data, quick)
        torch.set_num_threads(1)
        yield from _speed("Cloning", cloning, data, quick)
        yield _looking_ahead(planner, data, quick)
        yield _adapting(planner, data, quick)
    finally:
        torch.set_num_threads(threads)


def number_of_records(quick: bool = False) -> int:
    """How many records `benchmark` yields."""
    return 7


def _speed(name: str, model: KitchenPredictor, data: KitchenPeople, quick: bool) -> Iterator[Record]:
    predictor = PredictorInKitchens(model)
    count, few = (64, 4) if quick else (DECISIONS, 100)
    kitchens = [steps.some(slice(count)) for steps in data.steps("train").values()]
    total = sum(len(steps.seats) for steps in kitchens)

    def in_batches() -> None:
        for steps in kitchens:
            predictor.predict_decisions(steps)

    def one_by_one() -> None:
        for steps in kitchens:
            for row in range(few):
                predictor.predict_decisions(steps.some(slice(row, row + 1)))

    together = processor_seconds(in_batches, 1 if quick else 3) / total
    alone = processor_seconds(one_by_one, 1) / (few * len(kitchens))
    what = f"one thread, {total} decisions of people in {len(kitchens)} kitchens"
    yield Record(f"{name}_states_per_minute", 60 / together, "states/min", what)
    against = f"a state at a time, {alone * 1e3:.3g} ms each; in batches {together * 1e6:.3g} us"
    yield Record(f"{name}_vs_one_by_one", alone / together, "x", against)


def _on_all_threads(model: KitchenModel, data: KitchenPeople, quick: bool) -> Record:
    predictor = PredictorInKitchens(model)
    kitchens = [steps.some(slice(64 if quick else DECISIONS)) for steps in data.steps("train").values()]
    times = []
    for _ in range(1 if quick else 3):
        start = time.perf_counter()
        for steps in kitchens:
            predictor.predict_decisions(steps)
        times.append(time.perf_counter() - start)
    what = f"{torch.get_num_threads()} threads, by the clock, the same decisions"
    rate = 60 * sum(len(steps.seats) for steps in kitchens) / min(times)
    return Record("KitchenModel_states_per_minute_all_threads", rate, "states/min", what)


def _looking_ahead(model: KitchenModel, data: KitchenPeople, quick: bool) -> Record:
    """Games of one kitchen, some decisions at a time, as models that plan anew are scored."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    name, steps = next(iter(data.steps("train").items()))
    pieces = list(steps.some(slice(64 if quick else DECISIONS)).chunks(32 if quick else 4096))

    @torch.no_grad()
    def predict(settled: bool) -> None:
        model.engine = Lookahead(model, 1, Neural(model), settled)  # a new one, which has kept nothing yet
        for piece in pieces:
            model.action_log_probs(piece)

    afresh, kept = (processor_seconds(partial(predict, settled), 1) for settled in (False, True))
    total = sum(len(piece.seats) for piece in pieces)
    against = f"values made afresh, {afresh:.3g} s; kept, {kept:.3g} s; one thread, {total} decisions in {name}"
    return Record("lookahead_settled_vs_afresh", afresh / kept, "x", against)


def _adapting(model: KitchenModel, data: KitchenPeople, quick: bool) -> Record:
    with torch.no_grad():  # as if people had been found to differ
        for parameter in (model.values.people, model.rationality.raw_theta_beta):
            parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    predictor = PredictorInKitchens(model)
    name, steps = next(iter(data.steps("train").items()))
    mine = steps.some(steps.rollouts == steps.rollouts[0]).some(slice(20 if quick else SEEN))
    seconds = processor_seconds(lambda: predictor.adapt(name, mine.states, mine.actions, mine.seats), 1 if quick else 3)
    return Record("adapt", seconds, "s", f"a second; one thread, {len(mine.seats)} steps of one person")
