"""Getting to know people while they play, for models in which a person is a vector.

The vectors p of the people in training show how people differ. Somebody new is

    p = p_population + z D,    z ~ N(0, I / strength)

where D^T D is the covariance of people around the population: what is rare among people needs much evidence, and what
goes together in them is learned together. z is fitted by maximum a posteriori. Whatever does not depend on z is
computed once for each step: the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS

# Of the prior: 1 takes the spread of people in training at its word. On the validation people of the 2019 games (their
# steps after the first 400 of a game) it was best for BSDR after 50 steps seen, and near the best after 100 and 400.
STRENGTH = 1.0
STRETCH = 20  # steps of a game that are predicted as the same person's
_ITERATIONS = 40
_MORE_ITERATIONS = 8  # of a fit that goes on from one to fewer steps


class Adaptable(Protocol):
    """A model in which a person is a vector."""

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, of people it knows and of anybody else, `[N, 6]`."""

    def how_people_differ(self) -> Tensor:
        """D `[people trained on, numbers of a person]`."""

    def evidence(self, batch: Decisions) -> Sequence[Tensor]:
        """What there is to say of N decisions whoever made them, `[N, ...]` each."""

    def log_probs_of(self, evidence: Sequence[Tensor], shift: Tensor, fitting: bool = False) -> Tensor:
        """log P(action) `[N, 6]` by somebody who differs from the population by `shift`; quicker if only for a fit."""


@torch.enable_grad()
def fit_newcomer(
    model: Adaptable, evidence: Sequence[Tensor], actions: Tensor, directions: Tensor, start: Tensor | None = None
) -> Tensor:
    """Z of the person who most likely took these actions.

    Args:
        model: stays as it is.
        evidence: of N decisions.
        actions: `[N]`, that were taken.
        directions: D.
        start: a z `[people trained on]` close by, from which little is left to do.
    """
    z = directions.new_zeros(len(directions)) if start is None else start.clone()
    z.requires_grad_()
    iterations = _ITERATIONS if start is None else _MORE_ITERATIONS
    optimizer = torch.optim.LBFGS([z], max_iter=iterations, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        log_probs = model.log_probs_of(evidence, z @ directions, fitting=True)
        found = nll_loss(log_probs, actions, reduction="sum") + STRENGTH / 2 * z.square().sum()
        z.grad = torch.autograd.grad(found, z)[0]  # of nothing else: the model is not touched
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # torch has no types here
    return z.detach()


class GettingToKnow:
    """A model that gets to know people it never saw while they play; those in training it knows already.

    It remembers the decisions that it was asked about (see `Memory`), and predicts each as that of the person who most
    likely made those of the same game before it.

    Args:
        model: trained.
        stretch: steps of a game that are predicted with what is known before the first of them.
    """

    def __init__(self, model: Adaptable, stretch: int = STRETCH) -> None:
        self.model, self.stretch = model, stretch
        self._memory = Memory()

    @torch.no_grad()
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        directions, known = self.model.how_people_differ(), batch.humans != POPULATION
        found = directions.new_empty((len(batch.actions), NUM_ACTIONS))
        found[known] = self.model.action_log_probs(batch.some(known))
        evidence_now = self.model.evidence(batch)
        for rows, (actions, *evidence) in self._memory.games(batch, ~known, batch.actions, *evidence_now):
            z, game = None, []
            for first in range(0, len(actions), self.stretch):
                if first:
                    seen = [part[:first] for part in evidence]
                    z = fit_newcomer(self.model, seen, actions[:first], directions, z)
                shift = directions.new_zeros(directions.shape[1]) if z is None else z @ directions
                now = [part[first : first + self.stretch] for part in evidence]
                game.append(self.model.log_probs_of(now, shift))
            found[rows] = torch.cat(game)[-len(rows) :]
        return found


class Memory:
    """What was seen of people, by game.

    Games are asked about in the order of time, in as many batches as one likes; who asks about a time again takes back
    all that came after.
    """

    def __init__(self) -> None:
        self._seen: dict[int, list[Tensor]] = {}

    def games(self, batch: Decisions, which: Tensor, *evidence: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """For each game of a person, the rows `[L]` of the batch by time, and all evidence, of which they are last.

        Args:
            batch: N decisions.
            which: `[N]` bool, those that are asked about.
            evidence: what is to be remembered of them, `[N, ...]` each.
        """
        for rollout in torch.unique(batch.rollouts[which]).tolist():
            rows = (which & (batch.rollouts == rollout)).nonzero()[:, 0]
            rows = rows[batch.times[rows].argsort()]
            seen = [part[rows] for part in (batch.times, *evidence)]
            if rollout in self._seen:
                before = self._seen[rollout]
                kept = before[0] < seen[0][0]
                seen = [torch.cat([a[kept], b]) for a, b in zip(before, seen, strict=True)]
            self._seen[rollout] = seen
            yield rows, seen[1:]
