"""People who act in a small kitchen by the rule of BSDR, with everything known of them that a model may look for.

A person's plans solve the planner's Bellman equation (see `planning`) by plain sweeps over the table of states, in
double precision, and games are played step by step with the simulator: nothing here is shared with what infers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bsdr_torch.data.packed_games import AGREES, PackedGames
from bsdr_torch.data.prepared import PreparedSet, Provenance
from bsdr_torch.data.verification import Replay
from bsdr_torch.worlds.overcooked import (
    FEATURE_NAMES,
    NUM_ACTIONS,
    STAY,
    KitchenGraph,
    Layout,
    encode_features,
    enumerate_kitchen,
    start_states,
    step,
)

SITUATIONS = ("always", "the partner's hands are full", "something is in the pot", "the pot is full")
"""What rationality depends on: nothing that people could make last by waiting, as a low beta would invite them to."""

PARTNER = (0.13, 0.13, 0.13, 0.13, 0.18, 0.3)
"""The probabilities of the partner's actions, whatever happens: somebody who presses buttons, and so cooks, too."""

# What a step costs: positive everywhere, and least while a soup cooks, which never lasts, so that there is always work.
_STEP_COST = 1.3
_COSTS_MORE = {
    "hand_onion": -0.1,
    "hand_soup": 0.1,
    "interact_onion_potted": -0.1,
    "interact_soup_pickup": -0.15,
    "interact_soup_served": -0.15,
    "pot_0_onions_in": -0.75,
    "pot_0_cooking": -0.4,
    "pot_0_ready": 0.95,
}


def hatch() -> Layout:
    """A kitchen of two rooms with one pot between them and no counters: 1,871 states, in which the ego is player 0."""
    return Layout("hatch", ("XODXOX", "S  P D", "XDOXSX"), ((1, 1), (4, 1)), (), 2019, cook_times=(4,) * 10)


@dataclass(frozen=True, eq=False)
class SimulatedPeople:
    """N people who each play as player 0 with a partner who acts by `PARTNER`.

    Attributes:
        graph: the states of the kitchen, S of them: all that can happen.
        theta_beta: `[N, 4]`: log beta_i(s) = theta_beta[i] . `SITUATIONS`, less what makes the mean over people 1.
        cost_scale: what c(s) is multiplied with.
        discount: gamma.
        pause: the probability of a pause.
        log_base: `[2, 6]`, habit, for actions that do something and for those that change nothing.
    """

    graph: KitchenGraph
    theta_beta: Tensor
    cost_scale: float = 4.0
    discount: float = 0.9
    pause: float = 0.25
    log_base: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.5), (-1.0, -1.0, -1.0, -1.0, 0.0, -1.0))

    @property
    def names(self) -> list[str]:
        """The ids of the people."""
        return [f"human {number:02d}" for number in range(len(self.theta_beta))]

    @cached_property
    def cost(self) -> Tensor:
        """c(s), `[S]`."""
        more = torch.stack([weight * self._feature(name) for name, weight in _COSTS_MORE.items()]).sum(0)
        return self.cost_scale * (_STEP_COST + more)

    @cached_property
    def beta(self) -> Tensor:
        """beta_i(s), `[S, N]`; the mean over people is 1."""
        always = torch.ones(self.graph.num_states, dtype=torch.float64)
        full_hands, in_pot = 1 - self._feature("partner_hand_nothing"), self._feature("pot_0_onions_in")
        situations = torch.stack([always, full_hands, (in_pot > 0).double(), (in_pot == 1).double()], 1)
        beta = (situations @ self.theta_beta.double().T).exp()
        return beta / beta.mean(1, keepdim=True)

    @cached_property
    def policy(self) -> Tensor:
        """P_i(a|s), `[S, 6, N]`."""
        leads = self.graph.next_state.view(-1, NUM_ACTIONS, NUM_ACTIONS).long()  # own action, partner's action
        no_op = leads[:, :, STAY] == leads[:, STAY, STAY, None]
        habit = torch.tensor(self.log_base, dtype=torch.float64)
        base = torch.where(no_op, habit[1], habit[0])[..., None]
        reward = -self.beta * self.cost[:, None]
        values, change = torch.zeros_like(reward), torch.inf
        while change > 1e-6:
            future = torch.zeros(*no_op.shape, len(self.theta_beta), dtype=torch.float64)
            for own in range(NUM_ACTIONS):
                for other, chance in enumerate(PARTNER):
                    future[:, own] += self.discount * chance * values[leads[:, own, other]]
            planned = base + future
            new = reward + self.pause * future[:, STAY] + (1 - self.pause) * planned.logsumexp(1)
            values, change = new, float((new - values).abs().max())
        policy = (1 - self.pause) * planned.softmax(1)
        policy[:, STAY] += self.pause
        return policy

    def _feature(self, name: str) -> Tensor:
        return self._features[:, FEATURE_NAMES.index(name)]

    @cached_property
    def _features(self) -> Tensor:
        return encode_features(self.graph.layout, self.graph.states, 0).double()


def draw_people(
    many: int, level: float, dependence: float, generator: torch.Generator, layout: Layout | None = None
) -> SimulatedPeople:
    """People whose log beta varies by `level` from person to person, and by `dependence` with each situation.

    With `level` and `dependence` 0, they are all alike, everywhere.
    """
    spread = torch.tensor([level] + [dependence] * (len(SITUATIONS) - 1))
    theta_beta = spread * torch.randn(many, len(SITUATIONS), generator=generator)
    return SimulatedPeople(enumerate_kitchen(layout or hatch()), theta_beta)


def play(people: SimulatedPeople, games: int, steps: int, generator: torch.Generator) -> PackedGames:
    """Some games of each person, step by step."""
    graph, names = people.graph, [name for name in people.names for _ in range(games)]
    layout, G = graph.layout, len(names)
    states, who = start_states(layout, G), torch.arange(len(people.names)).repeat_interleave(games)
    partner = torch.tensor(PARTNER, dtype=torch.float64).expand(G, -1)
    seen, taken, earned = [], [], []
    for _ in range(steps):
        chances = people.policy[graph.index(states), :, who]
        actions = torch.cat([torch.multinomial(each, 1, generator=generator) for each in (chances, partner)], 1)
        seen.append(states)
        taken.append(actions)
        states, rewards, _ = step(layout, states, actions)
        earned.append(rewards)
    rewards = torch.stack(earned, 1).flatten().float()
    return PackedGames(
        layout=layout,
        games=[f"{name}, game {number % games}" for number, name in enumerate(names)],
        players=[(name, "partner") for name in names],
        is_human=[(True, False)] * G,
        official=[""] * G,
        game=torch.arange(G).repeat_interleave(steps),
        time=torch.arange(steps, dtype=torch.int32).repeat(G),
        states=torch.stack(seen, 1).flatten(0, 1),
        actions=torch.stack(taken, 1).flatten(0, 1).to(torch.uint8),
        rewards=rewards,
        soups=(rewards > 0).to(torch.uint8),
        agrees=torch.full((G * steps,), AGREES, dtype=torch.int8),
    )


def as_prepared(games: PackedGames) -> PreparedSet:
    """The games as if they had been recorded."""
    steps, name = len(games), games.layout.name
    replay = Replay(steps, steps, 0, steps, [], "keep", 0)
    return PreparedSet(Provenance("simulated", {}, games.layout.rules, "keep", [name]), {name: games}, {name: replay})
