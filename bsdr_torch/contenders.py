"""The models of people in kitchens that are compared with one another, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from bsdr_torch.baselines.bpd import BPD, Reminded
from bsdr_torch.baselines.cloning import AdaptableCloning, Cloning
from bsdr_torch.baselines.frequencies import KitchenFrequencies, uniform
from bsdr_torch.baselines.ileed import ILEED, OnlineILEED
from bsdr_torch.baselines.joint_optimum import BestPair
from bsdr_torch.baselines.self_play import SelfPlay, Taught, teach
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import PROTOCOLS, Protocol
from bsdr_torch.kitchens.adapting import AdaptableKitchenModel
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.networks import multiplies_in_bfloat16
from bsdr_torch.kitchens.newcomers import GettingToKnow
from bsdr_torch.kitchens.predicting import Precision, Predicts, fit_often
from bsdr_torch.kitchens.replanning import plan_anew
from bsdr_torch.kitchens.weighing import Weighed
from bsdr_torch.rationality import MODELS
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, Limits, load_graph

HISTORY, LONG_HISTORY = 8, 32
DROPOUT = {64: 0.1, 256: 0.3}  # by width, of cloning; of 0.1, 0.3 and 0.5 the best on validation for the wide one
TAUGHT = "lightning_logs/taught"  # where those who learn by playing are kept: one player serves all protocols
# Its authors' three, and what it is given in each of them: see scripts/configs/bpd.yaml, which keeps the same.
BPD_KITCHENS = ["cramped_room", "coordination_ring", "forced_coordination"]
BPD_BUDGET = {"iterations": 1200, "lessons": 500}

# How planners are trained. Under `human` they are asked about nobody whom they know, so that who acts is hidden half of
# the time; what is for a new kitchen is not to fit the known ones too closely, nor the people in them.
_PLANNERS: dict[Protocol, dict[str, float]] = {
    "rollout": {"max_epochs": 8, "learning_rate": 8e-3, "forget": 0.1, "settling": 2000},
    "human": {"max_epochs": 6, "learning_rate": 8e-3, "forget": 0.5, "settling": 2000},
    "layout": {
        "max_epochs": 5,
        "learning_rate": 4e-3,
        "weight_decay": 1.0,
        "forget": 0.1,
        "rank": 2,
        "settling": 2000,
    },
}


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
        protocols: those that it is for.
        made_of: the row whose model it is a use of, and what is made of the model, `use(model, data, seed)`, so that
            one fit serves both; `fit` does it all.
        version: raised when the same settings come to mean something else.
    """

    fit: Callable[..., Any]
    settings: dict[str, Any] = field(default_factory=dict)
    history: int = 0
    identity: bool = False
    seeded: bool = True
    fitted_on: str = "train"
    replan: Callable[[Any, KitchenPeople, int], Predicts] | None = None
    protocols: tuple[Protocol, ...] = PROTOCOLS
    made_of: tuple[str, Callable[[Any, KitchenPeople, int], Predicts]] | None = None
    version: int = 0

    def kitchens(self, layouts: Sequence[str]) -> list[str]:
        """Those of the kitchens that it is for: all, unless its settings name some."""
        return [name for name in layouts if name in self.settings.get("kitchens", layouts)]


def contenders(quick: bool = False) -> dict[str, Contender]:
    """All of them, in the order of the table; `quick` trains networks for one epoch, to see that it runs."""
    found = {
        "uniform": Contender(_uniform, seeded=False, fitted_on="nothing"),
        "frequencies": _frequencies(after_own_last=False),
        "previous-action": _frequencies(after_own_last=True),
    }

    def add(name: str, settings: dict[str, Any], train: Callable[..., Any] = _train, **row: Any) -> None:
        identity = settings.get("identity", settings["model"] == "ILEED")
        found[name] = Contender(train, settings, settings.get("history", 0), identity, **row)

    def add_cloning(name: str, identity: bool = False, layout: bool = False, **settings: Any) -> None:
        # Who acts is not known under `human`, where such a row would be the one without identity once more.
        skipped = {"human": identity, "layout": not layout}
        protocols = tuple(protocol for protocol in PROTOCOLS if not skipped.get(protocol))
        epochs = 1 if quick else 40 if settings.get("symmetric") else 20
        under: dict[Protocol, dict[str, float]] = {protocol: {"max_epochs": epochs} for protocol in protocols}
        if settings.get("symmetric"):
            # The best trials of docs/results/tuning.md.
            under["rollout"] |= {"learning_rate": 1e-3}
            if layout:
                under["layout"] |= {"weight_decay": 1.0}
        settings |= {"model": "Cloning", "identity": identity, "under": under}
        add(f"{name}{'-id' * identity}", settings, protocols=protocols)

    for identity in (False, True):
        add_cloning("habit", identity, layout=identity, kitchen=False, history=HISTORY)
    for width, dropout in DROPOUT.items():
        network: dict[str, Any] = {"hidden": [width, width], "dropout": dropout}
        add_cloning(f"cloning-{width}", **network)
        for identity in (False, True):
            layout = width == 64 and not identity  # without symmetries, cloning does not transfer: one row shows that
            add_cloning(f"cloning-{width}-history", identity, layout, history=HISTORY, **network)
    # All that the planners see: the same history, the same symmetries.
    for identity in (False, True):
        add_cloning("cloning-256-long", identity, history=LONG_HISTORY, **network)
        add_cloning("cloning-256-symmetric", identity, layout=identity, history=LONG_HISTORY, symmetric=True, **network)
    # The best of all trials of docs/results/tuning.md, under each protocol.
    best: dict[Protocol, dict[str, Any]] = {
        "rollout": {"hidden": [512, 512], "learning_rate": 1e-3, "max_epochs": 80},
        "human": {"hidden": [512, 512]},
        "layout": {"hidden": [256, 256, 256], "weight_decay": 1.0},
    }
    alike: dict[str, tuple[str, tuple[Protocol, ...]]] = {
        "cloning-tuned": ("cloning-256-symmetric", ("human",)),
        "cloning-tuned-id": ("cloning-256-symmetric-id", ("rollout", "layout")),
    }
    for name, (like, protocols) in alike.items():
        hurry = {"max_epochs": 1} if quick else {}
        chosen = {protocol: {"max_epochs": 40} | best[protocol] | hurry for protocol in protocols}
        add(name, found[like].settings | {"under": chosen}, protocols=protocols)
    # Who acts is hidden as often as in the training of planners, for people whom it never saw.
    for name in ("cloning-256-symmetric", "cloning-tuned"):
        known = found["cloning-256-symmetric-id"].settings | {"under": found[name].settings["under"], "forget": 0.5}
        add(f"{name}-online", known, _train_online, protocols=("human",))
    epochs = {protocol: {"max_epochs": 1 if quick else 20} for protocol in PROTOCOLS}
    # The best trials of docs/results/tuning.md, which were made with symmetries.
    tuned: dict[Protocol, dict[str, float]]
    tuned = {"rollout": {"max_epochs": 1 if quick else 40}, "layout": epochs["layout"] | {"weight_decay": 1.0}}
    memories: dict[str, dict[str, Any]] = {
        "": {},
        "-history": {"history": HISTORY},
        "-symmetric": {"history": LONG_HISTORY, "symmetric": True},
    }
    for memory, sees in memories.items():
        ileed = {"model": "ILEED", **sees}
        add(f"ileed{memory}", ileed | {"under": epochs | tuned if memory == "-symmetric" else epochs})
        # Whoever trained has an omega already.
        add(f"ileed{memory}-online", ileed | {"under": epochs}, _train_online, protocols=("human",))
    # The best of its trials when it was fitted, which had wider networks under each protocol.
    wider = {"hidden": [512, 512]}
    add("ileed-tuned", found["ileed-symmetric"].settings | wider)
    add("ileed-tuned-online", found["ileed-symmetric-online"].settings | wider, _train_online, protocols=("human",))
    practice = {"iterations": 1, "games": 2} if quick else {"taught": TAUGHT}
    for tempered, fitted_on in ((False, "nothing"), (True, "train")):
        name = "self-play" + "-tempered" * tempered
        found[name] = Contender(_self_play, {"tempered": tempered, **practice}, fitted_on=fitted_on)
    enumerated = {"max_objects": 0, "timers": "cooking"} if quick else {"max_objects": 1, "timers": "exact"}
    exact = {"kitchens": ["cramped_room"], "discount": 0.5 if quick else 0.97, "enumerated": enumerated}
    known_kitchens: tuple[Protocol, ...] = ("rollout", "human")  # a temperature needs people there
    found["self-play-exact"] = Contender(_best_pair, exact, seeded=False, protocols=known_kitchens)
    for way in ("sequence", "inference"):
        # They see no `history`, but all earlier steps of the rollout.
        bpd = {"kitchens": BPD_KITCHENS, "predict_by": way, **BPD_BUDGET, **practice}
        bpd |= {"lessons": 1} if quick else {}
        found[f"bpd-{way}"] = Contender(_bpd, bpd, fitted_on="nothing")
        found[f"bpd-{way}-tempered"] = Contender(_bpd, bpd | {"tempered": True}, fitted_on="train")
    hasty = {"max_epochs": 1, "settling": 20} if quick else {}
    anew = partial(plan_anew, steps=20, imagined=20) if quick else plan_anew
    under = {protocol: options | hasty for protocol, options in _PLANNERS.items()}
    for rationality in MODELS:
        planner = {"model": "KitchenModel", "rationality": rationality, "history": LONG_HISTORY, "identity": True}
        if rationality == "bsdr":  # what beta that depends on person and state is worth by itself
            add("bsdr-unfocused", planner | {"focus": False, "under": under}, replan=anew, version=4)
        add(rationality, planner | {"under": under}, replan=anew, version=4)
    # The best of its trials, as cloning and ILEED have it. The four above keep the same networks, to be compared.
    wide = {"layout": under["layout"] | {"hidden": [512, 256]}}
    add("bsdr-tuned", found["bsdr"].settings | {"under": wide}, replan=anew, protocols=("layout",), version=4)
    # What people do where habit and plans disagree is learned, too; all else is as it is.
    for of in ("br", "bsdr"):
        add(f"{of}-arbitrated", found[of].settings | {"arbitration": True}, replan=anew, version=4)
    for of in ("bsdr", "bsdr-arbitrated"):
        knows = (of, _get_to_know)
        add(f"{of}-online", found[of].settings, _train_online, protocols=("human",), made_of=knows, version=4)
    # How much of what was learned elsewhere counts in a new kitchen, beside habit: by what one holds, or in all states.
    for name, of, by_hand in (
        ("cloning-256-symmetric-weighed", "cloning-256-symmetric-id", True),
        ("cloning-tuned-weighed", "cloning-tuned-id", True),
        ("bsdr-weighed-evenly", "bsdr", False),
        ("bsdr-weighed", "bsdr", True),
        ("bsdr-tuned-weighed", "bsdr-tuned", True),
        ("bsdr-arbitrated-weighed", "bsdr-arbitrated", True),
    ):
        row = found[of]
        use = partial(_weigh, settings=row.settings, by_hand=by_hand)
        again = partial(_replan_weighed, anew) if row.replan and by_hand else None
        how = {"protocols": ("layout",), "replan": again, "made_of": (of, use), "version": row.version}
        add(name, row.settings | {"by_hand": by_hand}, _train_weighed, **how)
    return found


def _frequencies(after_own_last: bool) -> Contender:
    return Contender(
        _count, {"after_own_last": after_own_last}, int(after_own_last), seeded=False, fitted_on="train, validation"
    )


def _uniform(data: KitchenPeople, seed: int) -> Predicts:
    return uniform(NUM_ACTIONS)


def _count(data: KitchenPeople, seed: int, after_own_last: bool) -> Predicts:
    return KitchenFrequencies(data, after_own_last)


def _self_play(data: KitchenPeople, seed: int, **settings: Any) -> Predicts:
    return _at_temperature(teach(SelfPlay(data.specs, data.humans, data.named, **settings), seed), data)


def _best_pair(
    data: KitchenPeople, seed: int, kitchens: list[str], discount: float, enumerated: dict[str, Any]
) -> Predicts:
    limits = Limits(**enumerated)
    graphs = {name: load_graph(data.kitchens[name].layout, limits) for name in kitchens if name in data.kitchens}
    model = BestPair(graphs, discount)
    model.fit_temperature(data)
    return model


def _bpd(data: KitchenPeople, seed: int, kitchens: list[str], **settings: Any) -> Predicts:
    specs = [spec for spec in data.specs if spec["name"] in kitchens]
    return Reminded(_at_temperature(teach(BPD(specs, data.humans, data.named, **settings), seed), data), data)


def _at_temperature(model: Taught, data: KitchenPeople) -> Taught:
    if model.tempered:
        model.fit_temperature(data)
    return model


def _train(
    data: KitchenPeople, seed: int, model: str, under: dict[str, dict[str, Any]], **settings: Any
) -> Cloning | ILEED | KitchenModel:
    """Trains a network with the settings for everything and those for the protocol, or if it has none, the first's."""
    kinds: dict[str, type[Cloning] | type[ILEED] | type[KitchenModel]]
    kinds = {"Cloning": Cloning, "ILEED": ILEED, "KitchenModel": KitchenModel}
    settings |= under.get(data.protocol, next(iter(under.values())))
    epochs = settings.pop("max_epochs")
    restarts = settings.pop("restarts", 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)

        def make() -> Cloning | ILEED | KitchenModel:
            return kinds[model](data.specs, data.humans, data.named, **settings)

        return fit_often(make, data, epochs, _precision(), restarts)


def _precision() -> Precision:
    """Mixed where that takes half the time; scores differ less than between two seeds."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # as Lightning chooses
    return "bf16-mixed" if multiplies_in_bfloat16(device) else "32-true"


def _train_online(data: KitchenPeople, seed: int, **settings: Any) -> Predicts:
    return _get_to_know(_train(data, seed, **settings), data, seed)


def _get_to_know(model: Cloning | ILEED | KitchenModel, data: KitchenPeople, seed: int) -> Predicts:
    if isinstance(model, ILEED):
        return OnlineILEED(model)
    return GettingToKnow(AdaptableCloning(model) if isinstance(model, Cloning) else AdaptableKitchenModel(model))


def _train_weighed(data: KitchenPeople, seed: int, by_hand: bool, **settings: Any) -> Weighed[Any]:
    return _weigh(_train(data, seed, **settings), data, seed, settings, by_hand)


def _weigh(
    model: Cloning | ILEED | KitchenModel, data: KitchenPeople, seed: int, settings: dict[str, Any], by_hand: bool
) -> Weighed[Any]:
    if isinstance(model, KitchenModel):
        return Weighed(model, model.habit_log_probs, by_hand)
    return Weighed(model, _train(data, seed, **settings | {"kitchen": False}).action_log_probs, by_hand)


def _replan_weighed(
    anew: Callable[..., KitchenModel], model: Weighed[KitchenModel], data: KitchenPeople, seed: int
) -> Predicts:
    return Weighed(anew(model.model, data, seed), model.habit, model.by_hand)
