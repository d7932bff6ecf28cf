"""The models of people in kitchens that are compared with one another, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from bsdr_torch.baselines.bpd import BPD, Reminded
from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.baselines.frequencies import KitchenFrequencies, uniform
from bsdr_torch.baselines.self_play import SelfPlay, teach
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.kitchens.replanning import plan_anew
from bsdr_torch.rationality import MODELS
from bsdr_torch.worlds.overcooked import NUM_ACTIONS

HISTORY, LONG_HISTORY = 8, 32
DROPOUT = {64: 0.1, 256: 0.3}  # by width; few others were tried, judged by the validation part
TAUGHT = "lightning_logs/taught"  # where those who learn by playing are kept: one player serves all protocols


class Predicts(Protocol):
    """Anything that predicts what people do in kitchens."""

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""


@dataclass(frozen=True)
class Contender:
    """A row of the table: how a model is made, and what it may know.

    Attributes:
        fit: makes it from the training and validation part: `fit(data, seed, **settings)`.
        settings: all that distinguishes it from others with the same `fit`; plain data, by which results are cached.
        history: how many of the person's own last actions it sees.
        identity: whether it sees who acts.
        seeded: whether chance is involved.
        fitted_on: which parts it learns from.
        replan: for models that plan: the same model with everything planned anew: `replan(model, data, seed)`.
    """

    fit: Callable[..., Any]
    settings: dict[str, Any] = field(default_factory=dict)
    history: int = 0
    identity: bool = False
    seeded: bool = True
    fitted_on: str = "train"
    replan: Callable[[Any, KitchenPeople, int], Predicts] | None = None


def contenders(quick: bool = False) -> dict[str, Contender]:
    """All of them, in the order of the table; `quick` trains networks for one epoch, to see that it runs."""
    epochs = {"Cloning": 1 if quick else 20, "KitchenModel": 1 if quick else 8}
    found = {
        "uniform": Contender(_uniform, seeded=False, fitted_on="nothing"),
        "frequencies": _frequencies(after_own_last=False),
        "previous-action": _frequencies(after_own_last=True),
    }

    def add(name: str, model: str, **settings: Any) -> None:
        settings |= {"model": model, "max_epochs": epochs[model]}
        sees = settings.get("history", 0), settings.get("identity", False)
        found[name] = Contender(_train, settings, *sees, replan=plan_anew if model == "KitchenModel" else None)

    for identity in (False, True):
        add("habit" + "-id" * identity, "Cloning", kitchen=False, history=HISTORY, identity=identity)
    memories: dict[str, dict[str, Any]] = {
        "": {},
        "-history": {"history": HISTORY},
        "-history-symmetric": {"history": HISTORY, "symmetric": True},
    }
    for memory, sees in memories.items():
        for width, dropout in DROPOUT.items():
            for identity in (False, True):
                name = f"cloning-{width}{memory}{'-id' * identity}"
                add(name, "Cloning", hidden=[width, width], dropout=dropout, identity=identity, **sees)
    practice = {"iterations": 1, "games": 2, "folder": None} if quick else {"folder": TAUGHT}
    for tempered, fitted_on in ((False, "nothing"), (True, "train")):
        name = "self-play" + "-tempered" * tempered
        found[name] = Contender(_self_play, {"tempered": tempered, **practice}, fitted_on=fitted_on)
    for way in ("sequence", "inference"):
        # They see no `history`, but all earlier steps of the rollout.
        lessons = {"lessons": 1} if quick else {}
        found[f"bpd-{way}"] = Contender(_bpd, {"predict_by": way, **practice, **lessons}, fitted_on="nothing")
    planner = {"history": LONG_HISTORY, "identity": True}
    for rationality in MODELS:
        add(rationality, "KitchenModel", rationality=rationality, **planner)
    return found


def _frequencies(after_own_last: bool) -> Contender:
    return Contender(
        _count, {"after_own_last": after_own_last}, int(after_own_last), seeded=False, fitted_on="train, validation"
    )


def _uniform(data: KitchenPeople, seed: int) -> Predicts:
    return uniform(NUM_ACTIONS)


def _count(data: KitchenPeople, seed: int, after_own_last: bool) -> Predicts:
    return KitchenFrequencies(data, after_own_last)


def _self_play(data: KitchenPeople, seed: int, folder: str | None, **settings: Any) -> Predicts:
    model = teach(SelfPlay(data.specs, data.humans, data.named, **settings), seed, folder)
    if model.tempered:
        model.fit_temperature(data)
    return model


def _bpd(data: KitchenPeople, seed: int, folder: str | None, **settings: Any) -> Predicts:
    return Reminded(teach(BPD(data.specs, data.humans, data.named, **settings), seed, folder), data)


def _train(data: KitchenPeople, seed: int, model: str, max_epochs: int, **settings: Any) -> Predicts:
    kinds: dict[str, type[Cloning] | type[KitchenModel]] = {"Cloning": Cloning, "KitchenModel": KitchenModel}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return fit(kinds[model](data.specs, data.humans, data.named, **settings), data, max_epochs)
