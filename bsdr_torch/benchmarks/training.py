"""One training step of people in kitchens: its time, where that goes and its memory, against a step of cloning."""

from __future__ import annotations

import gc
import logging
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from torch.utils.data import DataLoader

from bsdr_torch import solver
from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.benchmarks import measure
from bsdr_torch.benchmarks.data import DEFAULT_FOLDER
from bsdr_torch.benchmarks.measure import Record, in_fresh_process, processor_seconds
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepare import prepare
from bsdr_torch.kitchens import engines, kitchen_model
from bsdr_torch.kitchens.engines import Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import KitchenPredictor

DECISIONS = 1024  # in a batch
KITCHENS = (
    "cramped_room",
    "asymmetric_advantages",
    "coordination_ring",
    "forced_coordination",
    "counter_circuit_o_1order",
)
ENUMERATED = ("cramped_room", "forced_coordination")  # with empty counters
PARTS = ("planning", "encoding", "networks", "lightning")


class Step(NamedTuple):
    """What a training step takes: seconds of the processor by part, and megabytes beyond what the model holds."""

    seconds: dict[str, float]
    megabytes: float

    @property
    def total(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())


def benchmark(quick: bool = False, folder: Path | str | None = None) -> Iterator[Record]:
    """Steps of KitchenModel with each engine in each kitchen of 2019, on one thread; each engine in a new process.

    - planning: expectations over successors; of the exact engine, the solution of a kitchen and its implicit gradient.
    - encoding: successors of states, which of them are the same, and features.
    - networks: all that is left of the loss, its gradient and the optimiser.
    - lightning: what is left of the loop, with batches and logs.

    Lookahead is for prediction, and is set beside what it is on top of.

    Args:
        quick: measure little, to see that it works.
        folder: of the prepared 2019 set; by default datasets/mturk_2019, or a temporary one if that is not there.
    """
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None:
            folder = DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else Path(temporary) / "mturk_2019"
        prepare("mturk_2019", folder)
        for kitchen in _kitchens(quick):
            for engine in _engines(kitchen, quick):
                yield from in_fresh_process(_steps_of, engine, kitchen, folder, quick)
            yield in_fresh_process(_looking_ahead, kitchen, folder, quick)


def number_of_records(quick: bool = False) -> int:
    """How many records `benchmark` yields."""
    per_engine = 3 + len(PARTS)
    return sum(1 + per_engine * len(_engines(kitchen, quick)) for kitchen in _kitchens(quick))


def _kitchens(quick: bool) -> tuple[str, ...]:
    return ("forced_coordination",) if quick else KITCHENS


def _engines(kitchen: str, quick: bool) -> dict[str, dict[str, Any]]:
    """The settings of KitchenModel by the name of its planner."""
    found: dict[str, dict[str, Any]] = {"neural": {}}
    if kitchen in ENUMERATED:
        found["exact"] = {"planner": "exact"}
        found["exact_br"] = {"planner": "exact", "rationality": "br"}
    if kitchen == "cramped_room" and not quick:
        found["exact_br_1_object"] = {"planner": "exact", "rationality": "br", "max_objects": 1}
    return found


def _steps_of(engine: str, kitchen: str, folder: Path | str, quick: bool) -> list[Record]:
    data = _one_batch(kitchen, folder, quick)
    people = data.specs, data.humans, data.named
    repeats = 2 if quick or "1_object" in engine else 4 if engine.startswith("exact") else 20
    model = KitchenModel(*people, **_engines(kitchen, quick)[engine])
    step = _step(model, data, repeats)
    cloning = _step(Cloning(*people), data, 2 if quick else 50)  # which needs less than what was measured before it
    what = f"one thread, a batch of {len(data.batch.actions)} in {kitchen}, rationality {model.rationality.kind}"
    prefix, of = f"{engine}_{kitchen}", f"the step, {step.total:.3g} s"
    against = f"a step of Cloning 64-64 on the same batch, {cloning.total * 1e3:.3g} ms"
    return [
        Record(f"{prefix}_step", step.total, "s", what),
        Record(f"{prefix}_vs_cloning", step.total / cloning.total, "x", against),
        Record(f"{prefix}_memory", step.megabytes, "MB", "the process with data and model, before the training"),
        *(Record(f"{prefix}_{part}", step.seconds[part] / step.total, "share", of) for part in PARTS),
    ]


def _looking_ahead(kitchen: str, folder: Path | str, quick: bool) -> Record:
    """Predictions of a batch with one step of lookahead, against none."""
    data = _one_batch(kitchen, folder, quick)
    model = KitchenModel(data.specs, data.humans, data.named).eval()

    @torch.no_grad()
    def predict() -> None:
        model.action_log_probs(data.batch)

    repeats = 1 if quick else 3
    without = processor_seconds(predict, repeats)
    model.engine = Lookahead(model, 1, Neural(model))
    ahead = processor_seconds(predict, repeats)
    against = f"predicting the batch without, {without * 1e3:.3g} ms; with a step of lookahead {ahead * 1e3:.3g} ms"
    return Record(f"lookahead_{kitchen}_vs_neural", ahead / without, "x", against)


def _one_batch(kitchen: str, folder: Path | str, quick: bool) -> _OneBatch:
    """A batch in a kitchen, in a process that has one thread and Lightning's notes switched off."""
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    return _OneBatch(folder, kitchen, 32 if quick else DECISIONS)


class _OneBatch(KitchenPeople):
    """The first batch in a kitchen, over and over: more often than steps are measured, as epochs end in other work."""

    def __init__(self, folder: Path | str, kitchen: str, decisions: int) -> None:
        super().__init__(str(folder), layouts=[kitchen], batch_size=decisions)
        self.batch: Decisions = next(iter(super().train_dataloader()))

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader([self.batch] * 1000, batch_size=None)  # type: ignore[arg-type]  # a list is a Dataset


def _step(model: KitchenPredictor, data: _OneBatch, repeats: int) -> Step:
    """Means over some steps, after one that is not counted."""
    watch = _Watch()
    gc.collect()
    before = measure._resident_megabytes()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=1 + repeats,
        limit_val_batches=0,
        callbacks=[_AfterTheFirst(watch)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with _watched(watch, model):
        trainer.fit(model, datamodule=data)
    seconds = {part: watch.seconds[part] / repeats for part in PARTS}
    return Step(seconds, max(0.0, measure._peak_megabytes() - before))


class _AfterTheFirst(lightning.Callback):
    """Starts the watch after the first step, and stops it after the last."""

    def __init__(self, watch: _Watch) -> None:
        self.watch = watch

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step == 1:
            self.watch.start("lightning")
        elif trainer.global_step == trainer.max_steps:
            self.watch.stop()


class _Watch:
    """The processor's time by part, each moment counted once: for the part that was begun last and goes on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._parts: list[str] = []
        self._since = 0.0

    def start(self, part: str) -> None:
        """Forgets all, and counts for `part`."""
        self.seconds.clear()
        self._parts, self._since = [part], time.process_time()

    def stop(self) -> None:
        """Counts no more."""
        self._count()
        self._parts = []

    def of(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is counted for `part`."""

        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._parts:
                return function(*args, **kwargs)
            self._count()
            self._parts.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                if self._parts:
                    self._count()
                    self._parts.pop()

        return counted

    def _count(self) -> None:
        now = time.process_time()
        self.seconds[self._parts[-1]] += now - self._since
        self._since = now


@contextmanager
def _watched(watch: _Watch, model: KitchenPredictor) -> Iterator[None]:
    """Has the watch told of all that a step does."""
    step_of_optimizer = torch.optim.AdamW.step

    def step(optimizer: torch.optim.AdamW, closure: Callable[[], Any]) -> Any:
        # Lightning hands over the loss and its gradient as the optimiser's closure.
        return step_of_optimizer(optimizer, watch.of("lightning", closure))

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.optim.AdamW, "step", watch.of("networks", step)),
        *((model, name, watch.of("networks", getattr(model, name))) for name in ("training_step", "backward")),
        *((model, name, watch.of("lightning", getattr(model, name))) for name in ("log", "log_dict")),
    ]
    if isinstance(model, Cloning):
        replaced.append((model, "encode", watch.of("encoding", model.encode)))
    if isinstance(model, KitchenModel):
        watched: list[tuple[Any, str, tuple[str, ...]]] = [
            (kitchen_model, "encoding", ("outlook", "view")),
            (engines, "encoding", ("places", "view")),
            (kitchen_model, "planning", ("action_values", "backup", "choice_log_probs")),
            (engines, "planning", ("initial_values",)),
            (engines.Enumerated, "planning", ("mdp",)),
        ]
        for owner, part, names in watched:
            replaced += [(owner, name, watch.of(part, getattr(owner, name))) for name in names]
        replaced.append((solver.Endless, "gradient", watch.of("planning", solver.Endless.gradient)))
    with ExitStack() as undo:
        for owner, name, function in replaced:
            own = name in vars(owner)
            undo.callback(setattr, owner, name, getattr(owner, name)) if own else undo.callback(delattr, owner, name)
            setattr(owner, name, function)
        yield
