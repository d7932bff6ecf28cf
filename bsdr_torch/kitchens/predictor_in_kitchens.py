"""Predictions for people in kitchens: states in any form, people known, unknown, or just met."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED, Decisions, DecisionTable
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.prepare import read_and_verify
from bsdr_torch.data.prepared import read_prepared
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.adapting import Evidence, Person, fit_person, gather_evidence, with_newcomer
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import KitchenPredictor, Prediction
from bsdr_torch.kitchens.replanning import RESIDUAL, plan_in
from bsdr_torch.kitchens.weighing import HANDS, WEIGHTS, hands_of, weighed_log_probs
from bsdr_torch.kitchens.weighing import evidence as evidence_of_weights
from bsdr_torch.predictor import PredictedFile, Predictor
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import ACTIONS, Layout, check_states, from_overcooked, from_records, load_layout

ROWS_AT_ONCE = 32768  # the more, the more of what may come next is shared

States = Tensor | Mapping[str, Any] | str | Sequence[Any]
"""One or many: packed, `[N, W]` or `[W]`; records of a data set, dicts or their JSON text; or OvercookedStates."""
Action = int | str
"""A number 0..5, or one of `ACTIONS`."""


class PredictorInKitchens(Predictor):
    """Predictions of a trained model of people in kitchens.

    Example::

        predictor = Predictor.from_checkpoint("best.ckpt")
        predictor.predict("cramped_room", state, seats=0, humans="17/1", history=["stay", "east"]).probabilities
        predictor.adapt("cramped_room", states[:400], actions[:400], seats=0).predict("cramped_room", state, seats=0)
        predictor.plan("my_kitchen.yaml").predict("my_kitchen", state, seats=0)
    """

    def __init__(self, model: KitchenPredictor) -> None:
        self.model = model.eval()
        self._numbers = {human: model.humans.index(human) for human in model.trained_on}
        self._newcomer: KitchenModel | None = None
        self._evidence: Evidence | None = None
        self._weighed: dict[tuple[str, int], Tensor] = {}  # evidence [hands, weights, 2] of kitchens and people
        self.person: Person | None = None

    @property
    def humans(self) -> list[str]:
        """The people the model was trained on."""
        return list(self.model.trained_on)

    @property
    def history(self) -> int:
        """How many of a person's own last actions the model sees."""
        return int(self.model.hparams.get("history", 0))

    def predict(
        self,
        layout: str,
        states: States,
        seats: int | Sequence[int] | Tensor,
        humans: str | Sequence[str | None] | None = None,
        history: Sequence[Any] | Tensor | None = None,
    ) -> Prediction:
        """What N people will do next, how rational they are there, and what they expect.

        Args:
            layout: the kitchen.
            states: N of them; one alone counts as N = 1.
            seats: which player each person is, 0 or 1; one for all or N.
            humans: who they are; one for all or N. None is somebody never seen; in an adapted predictor, the person it
                was adapted to.
            history: the last actions of each, the latest last: N lists of `history` actions, or fewer if the game has
                just begun; or one list for one state. None if nothing is known of them: then habit is that of
                everybody's mean.
        """
        return self.predict_decisions(self._decisions(layout, states, seats, humans, history))

    def adapt(
        self,
        layout: str,
        states: States,
        actions: Sequence[Action] | Tensor,
        seats: int | Sequence[int] | Tensor,
        history: Sequence[Any] | Tensor | None = None,
    ) -> PredictorInKitchens:
        """A predictor that has got to know somebody new: there, None is this person. Everybody else is as before.

        Only theta_beta, the person's part of the planner's values and the person's habit are fitted. Adapting an
        adapted predictor adds steps to those it has seen, so that one can go on as a game does.

        Args:
            layout: the kitchen.
            states: T states of one game, in order.
            actions: the T actions that the person took in them.
            seats: which player the person is.
            history: what the person did before each step, as in `predict`; by default what `actions` says, as if the
                game had begun with the first of them.
        """
        model = self._planner("adapted to a person")
        evidence = gather_evidence(model, self._seen(layout, states, actions, seats, None, history))
        if self._evidence is not None:
            evidence = self._evidence.joined(evidence)
        adapted = copy.copy(self)
        adapted._weighed = {key: seen for key, seen in self._weighed.items() if key[1] != POPULATION}
        adapted.person, adapted._evidence = fit_person(model, evidence), evidence
        adapted._newcomer = with_newcomer(model, adapted.person)
        return adapted

    @torch.no_grad()
    def weigh(
        self,
        layout: str,
        states: States,
        actions: Sequence[Action] | Tensor,
        seats: int | Sequence[int] | Tensor,
        human: str | None = None,
        history: Sequence[Any] | Tensor | None = None,
    ) -> PredictorInKitchens:
        """A predictor that has seen how far its plans hold for somebody in a kitchen, such as one nobody trained it in.

        For them action probabilities are weighed between habit and plans by the exact posterior, see `weighing`. All
        else is as before. Weighing again adds steps to those it has seen, so that one can go on as a game does.

        Args:
            layout: the kitchen.
            states: T states of one game, in order.
            actions: the T actions that the person took in them.
            seats: which player the person is.
            human: who it is; None for somebody never seen, or for the person that the predictor was adapted to.
            history: as in `adapt`.
        """
        self._planner("weighed against habit")
        steps = self._seen(layout, states, actions, seats, human, history)
        habit, model = self._habit(steps), self._plain(steps).probabilities.log()
        seen = torch.zeros((HANDS, len(WEIGHTS), 2), dtype=torch.float64, device=self.model.device)
        seen.index_add_(0, hands_of(steps), evidence_of_weights(habit, model, steps.actions).double())
        key = (layout, int(steps.humans[0]))
        weighed = copy.copy(self)
        weighed._weighed = self._weighed | {key: self._weighed.get(key, 0) + seen}
        return weighed

    def plan(
        self,
        layout: str | Path | Layout,
        max_objects: int | None = None,
        lookahead: int = 0,
        wanted: float = RESIDUAL,
        seed: int = 0,
    ) -> PredictorInKitchens:
        """A predictor for one kitchen, where nobody need have been watched: plans are made anew from what people want.

        Habits, rationality and the cost stay as they were learned; the values are planned from them and the rules, by a
        network in about a minute (some, where they do not hold well at first), or exactly where the states of the
        kitchen are few enough to be enumerated.

        Args:
            layout: a kitchen of the model or any other: a name that `load_layout` knows, a path to a .yaml file, or a
                `Layout`.
            max_objects: plan exactly in all states with at most so many things on counters; None for the network alone.
            lookahead: how many steps are exact on top of the network; each makes predictions several times as slow.
            wanted: by how many nats the network's plans may miss the Bellman equation.
            seed: of planning.
        """
        model = self._planning()
        kitchen = layout if isinstance(layout, Layout) else model.layouts.get(str(layout)) or load_layout(layout)
        self._same(kitchen)
        return PredictorInKitchens(plan_in(model, kitchen, max_objects, lookahead, wanted=wanted, seed=seed))

    def predict_file(self, path: str | Path, anew: bool = False) -> PredictedFile:
        """Predictions for all decisions in a folder of prepared games, or in a file in the 2020 schema."""
        kitchens = self._read(Path(path))
        unknown = [name for name in kitchens if name not in self.model.layouts]
        if unknown and not anew:
            hint = ": plan anew to have others, too" if isinstance(self.model, KitchenModel) else ""
            known = ", ".join(self.model.layouts)
            raise InputError(f"{path}: {unknown[0]}: not a kitchen of this model, which has {known}{hint}")
        for games in kitchens.values():
            self._same(games.layout, f"{path}: ")
        if anew:
            self._planning()

        def tables() -> Iterator[pa.Table]:
            for games in kitchens.values():
                there = self.plan(games.layout) if anew else self
                yield from there.tables(games)

        return PredictedFile(sum(games.num_decisions for games in kitchens.values()), tables())

    def _planning(self) -> KitchenModel:
        """The model, if it plans and nothing was learned by its plans that new ones would lose."""
        model = self._planner("asked to plan")
        if self._newcomer is not None or self._weighed:
            raise InputError("this predictor knows somebody by its old plans: plan first, then adapt or weigh")
        return model

    def _same(self, layout: Layout, source: str = "") -> None:
        """Refuses another kitchen by the name of one that the model knows."""
        if self.model.layouts.get(layout.name, layout) != layout:
            raise InputError(f"{source}{layout.name} is not the kitchen of that name that the model was trained for")

    def tables(self, games: PackedGames) -> Iterator[pa.Table]:
        """A row for each decision of a person: what was done, how likely each action was, beta, focus and value."""
        people = games.humans
        numbers = {human: self._numbers.get(human, POPULATION) for human in people}
        table = DecisionTable.of(games, numbers, self.history)
        human = torch.tensor(games.is_human)[games.game].view(-1).nonzero()[:, 0]
        for rows in _whole_games(human, games.game[human >> 1]):
            steps = table.gather(rows)
            yield _table(games, rows, steps, self.predict_decisions(steps))

    @torch.no_grad()
    def predict_decisions(self, steps: Decisions) -> Prediction:
        """Predictions for decisions as the DataModule has them, however many; their people are numbers of the model."""
        parts = [self._predict_some(steps.some(rows).to(self.model.device)) for rows in _chunks(len(steps.seats))]
        found = parts[0] if len(parts) == 1 else _joined(parts)
        return Prediction._make(None if part is None else part.cpu() for part in found)

    def _predict_some(self, steps: Decisions) -> Prediction:
        found = self._plain(steps)
        for (layout, human), seen in self._weighed.items():
            rows = (steps.humans == human).nonzero()[:, 0]
            if layout == steps.layout and len(rows):
                theirs = steps.some(rows)
                model = found.probabilities[rows].log()
                log_probs = weighed_log_probs(self._habit(theirs), model, seen[hands_of(theirs)])
                found.probabilities[rows] = log_probs.exp()
        return found

    def _habit(self, steps: Decisions) -> Tensor:
        """log P(action) by habit alone, `[N, 6]`, of people who are all new or all known."""
        model = self._planner("asked about habit")
        if self._newcomer is not None and int(steps.humans[0]) == POPULATION:
            model = self._newcomer
        return model.habit_log_probs(steps)

    def _planner(self, verb: str) -> KitchenModel:
        if not isinstance(self.model, KitchenModel):
            raise InputError(f"{type(self.model).__name__} cannot be {verb}: only KitchenModel can")
        return self.model

    def _plain(self, steps: Decisions) -> Prediction:
        new = steps.humans == POPULATION
        if self._newcomer is None or not bool(new.any()):
            return self.model.predict_step(steps)
        found = self._newcomer.predict_step(steps._replace(humans=torch.full_like(steps.humans, POPULATION)))
        if bool(new.all()):
            return found
        others = self.model.predict_step(steps.some(~new))
        for mine, theirs in zip(found, others, strict=True):
            if mine is not None and theirs is not None:
                mine[~new] = theirs
        return found

    def _seen(
        self,
        layout: str,
        states: States,
        actions: Sequence[Action] | Tensor,
        seats: int | Sequence[int] | Tensor,
        human: str | None,
        history: Sequence[Any] | Tensor | None,
    ) -> Decisions:
        """Steps of one person in one game, with what they did."""
        steps, taken = self._decisions(layout, states, seats, human, None), _actions(actions)
        if taken.shape != steps.seats.shape:
            raise InputError(f"got {len(steps.seats)} states and {len(taken)} actions: give one action for each state")
        if not len(taken):
            raise InputError("there are no steps to learn from: give at least one state and action")
        if history is None:
            before = torch.cat([taken.new_full((self.history,), UNRECORDED), taken])
            past = before.unfold(0, self.history, 1)[: len(taken)].flip(1) if self.history else steps.history
        else:
            past = self._history(history, len(taken))
        return steps._replace(actions=taken, history=past).to(self.model.device)

    def _decisions(
        self,
        layout: str,
        states: States,
        seats: int | Sequence[int] | Tensor,
        humans: str | Sequence[str | None] | None,
        history: Sequence[Any] | Tensor | None,
    ) -> Decisions:
        packed = pack_states(self.model.layout(layout), states)
        N = len(packed)
        names = [humans] * N if humans is None or isinstance(humans, str) else list(humans)
        at = torch.as_tensor(seats, dtype=torch.int64)
        at = at.expand(N) if at.ndim == 0 else at
        if at.shape != (N,) or len(names) != N:
            raise InputError(f"got {N} states, {at.numel()} seats and {len(names)} humans: give one of each a state")
        if bool(((at != 0) & (at != 1)).any()):
            raise InputError(f"a seat is 0 or 1, got {at[(at != 0) & (at != 1)][0]}")
        nothing = torch.zeros(N, dtype=torch.int64)
        return Decisions(
            layout=layout,
            states=packed,
            humans=self._index(names, self._numbers),
            seats=at.contiguous(),
            history=self._history(history, N),
            partner_last=nothing + UNRECORDED,
            actions=nothing,
            rollouts=nothing,
            times=nothing,
        )

    def _history(self, history: Sequence[Any] | Tensor | None, N: int) -> Tensor:
        """`[N, H]`, the latest first, of lists of which the latest is last."""
        if history is None and isinstance(self.model, KitchenModel):
            return torch.empty((N, 0), dtype=torch.int64)  # which is to say that nothing is known
        if history is None:
            if self.history:
                raise InputError(
                    f"{type(self.model).__name__} with history cannot do without it: give the last {self.history} "
                    "actions of each person, the latest last, or [] where the game has just begun"
                )
            history = [[]] * N
        rows: list[Any] = list(history)
        if N == 1 and all(isinstance(row, str | int) or (isinstance(row, Tensor) and row.ndim == 0) for row in rows):
            rows = [rows]
        if len(rows) != N:
            raise InputError(f"got {N} states and {len(rows)} histories: give a list of past actions for each state")
        found = torch.full((N, self.history), UNRECORDED)
        for number, row in enumerate(rows):
            if len(row) > self.history:
                raise InputError(
                    f"history {number} has {len(row)} actions, and the model sees the last {self.history}: give it "
                    + (f"history[-{self.history}:], the latest last" if self.history else "none")
                )
            if len(row):
                found[number, : len(row)] = _actions(row, UNRECORDED).flip(0)
        return found

    def _read(self, path: Path) -> dict[str, PackedGames]:
        if path.is_dir():
            return read_prepared(path).kitchens
        years = {layout.rules for layout in self.model.layouts.values()}
        if len(years) > 1:
            raise InputError(f"{path}: the model has kitchens of the rules of both years: prepare the games first")
        return read_and_verify(path, 2019 if 2019 in years else 2020).kitchens


def pack_states(layout: Layout, states: States) -> Tensor:
    """States in any form -> packed `[N, W]`, if they can occur in the kitchen."""
    if isinstance(states, Tensor):
        packed = states if states.ndim == 2 else states.unsqueeze(0)
        check_states(layout, packed)
        return packed
    rows: Sequence[Any] = [states] if isinstance(states, Mapping | str) or hasattr(states, "players") else states
    if all(isinstance(row, Mapping | str) for row in rows):
        return from_records(layout, rows)
    if all(hasattr(row, "players") and hasattr(row, "objects") for row in rows):
        return from_overcooked(layout, rows)
    if all(isinstance(row, Tensor) and row.ndim == 1 and len(row) == len(rows[0]) for row in rows):
        return pack_states(layout, torch.stack(list(rows)))
    kinds = ", ".join(sorted({type(row).__name__ for row in rows}))
    raise InputError(f"states are packed tensors, records, or OvercookedStates, all of one kind; got {kinds}")


def _actions(actions: Sequence[Action] | Tensor, largest: int = UNRECORDED - 1) -> Tensor:
    """Actions by number or name -> `[T]` int64."""
    if not isinstance(actions, Tensor):
        unknown = [action for action in actions if isinstance(action, str) and action not in ACTIONS]
        if unknown:
            raise InputError(f"{unknown[0]!r} is not an action: choose 0 to {len(ACTIONS) - 1} or {', '.join(ACTIONS)}")
        actions = torch.tensor([ACTIONS.index(a) if isinstance(a, str) else int(a) for a in actions])
    found = actions.long()
    if bool(((found < 0) | (found > largest)).any()):
        wrong = found[(found < 0) | (found > largest)][0]
        raise InputError(f"{int(wrong)} is not an action: choose 0 to {len(ACTIONS) - 1} or {', '.join(ACTIONS)}")
    return found


def _whole_games(rows: Tensor, game: Tensor) -> Iterator[Tensor]:
    """Rows, game after game, so many at a time that no game is cut in two: some models remember how it began."""
    sizes = torch.unique_consecutive(game, return_counts=True)[1].tolist()
    together = [0]
    for size in sizes:
        if together[-1] and together[-1] + size > ROWS_AT_ONCE:
            together.append(0)
        together[-1] += size
    yield from torch.split(rows, together)


def _chunks(N: int) -> list[slice]:
    return [slice(first, first + ROWS_AT_ONCE) for first in range(0, max(N, 1), ROWS_AT_ONCE)]


def _joined(parts: list[Prediction]) -> Prediction:
    columns = (None if same[0] is None else torch.cat(same) for same in zip(*parts, strict=True))
    return Prediction._make(columns)


def _table(games: PackedGames, rows: Tensor, steps: Decisions, found: Prediction) -> pa.Table:
    game = games.game[rows >> 1]
    seats, known = steps.seats.tolist(), (steps.humans != POPULATION).numpy()
    taken = steps.actions[:, None]
    nothing = pa.nulls(len(rows), pa.float32())
    columns = {
        "layout": pa.array([steps.layout] * len(rows), pa.string()),
        "game": pa.array(games.games).take(pa.array(game.numpy())),
        "human": pa.array([games.players[g][seat] for g, seat in zip(game.tolist(), seats, strict=True)], pa.string()),
        "known_human": pa.array(known),
        "seat": steps.seats.numpy().astype(np.int8),
        "time": steps.times.numpy(),
        "action": pa.array(ACTIONS).take(pa.array(steps.actions.numpy())),
        "probability": found.probabilities.gather(1, taken).squeeze(1).numpy(),
    }
    columns |= {f"p_{action}": found.probabilities[:, a].numpy() for a, action in enumerate(ACTIONS)}
    for name, of in (("beta", found.beta), ("focus", found.focus), ("value", found.values)):
        columns[name] = nothing if of is None else of.numpy()
    return pa.table(columns)
