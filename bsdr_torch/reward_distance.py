"""How far rewards are from one another, whatever their scale and shaping.

A reward may be multiplied by a positive number, and shaped by gamma E[F(s')] - F(s) for any F, without a change in what
is best to do. Both measures here ignore that: a distance between canonical forms, and the regret of acting by the
one when the other is true.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP
from bsdr_torch.soft_bellman import optimal_policy, policy_return, uniform_base, visitation


def canonical_reward(mdp: TabularMDP, reward: Tensor, discount: float) -> Tensor:
    """The representative `[S, A, B]` of all rewards that differ from `reward` in scale and shaping, of length 1.

    It is the advantage r(s, a) + discount E[V(s')] - V(s), where V are the values of acting at random for ever, which
    take any shaping away. `reward` is `[S, B]` or `[S, A, B]`.
    """
    if not 0 <= discount < 1:
        raise ValueError(f"a canonical reward needs 0 <= discount < 1, got {discount}")
    S, A, K = mdp.next_state.shape
    reward = reward if reward.ndim == 3 else reward[:, None].expand(S, A, -1)
    if tuple(reward.shape[:2]) != (S, A):
        raise ValueError(f"reward must be [{S}, B] or [{S}, {A}, B], got {tuple(reward.shape)}")
    chance = reward.new_ones(S, A, K) if mdp.probability is None else mdp.probability.to(reward.dtype).expand(S, A, K)
    goes_on = reward.new_ones(S) if mdp.terminal is None else (~mdp.terminal).to(reward.dtype)
    chance = chance * goes_on[:, None, None]
    random = uniform_base(mdp, reward.dtype).exp().expand(S, A, 1)
    if mdp.allowed is not None:
        random = random * mdp.allowed[..., None]
    to = mdp.next_state.long()
    transition = reward.new_zeros(S, S).scatter_add_(1, to.flatten(1), (chance * random).flatten(1))
    identity = torch.eye(S, dtype=reward.dtype, device=reward.device)
    values: Tensor = torch.linalg.solve(identity - discount * transition, (reward * random).sum(1))
    later = (values[to] * chance[..., None]).sum(2)
    advantage: Tensor = (reward + discount * later - values[:, None]) * goes_on[:, None, None] * (random > 0)
    length: Tensor = advantage.flatten(0, 1).norm(dim=0)
    return advantage / length.clamp(min=torch.finfo(reward.dtype).tiny)


def reward_distances(mdp: TabularMDP, reward: Tensor, discount: float) -> Tensor:
    """Half the distance between the canonical forms of rewards `[S, B]`, `[B, B]`: 0 for the same, 1 for opposites."""
    canonical = canonical_reward(mdp, reward, discount).flatten(0, 1).T
    cosine = (canonical @ canonical.T).clamp(-1, 1)
    distance = ((1 - cosine) / 2).sqrt()
    return distance.fill_diagonal_(0)


@torch.no_grad()
def pairwise_regret(mdp: TabularMDP, reward: Tensor, horizon: int) -> Tensor:
    """What the best policy for reward j loses where reward i is true, `[B, B]` (row i), of rewards `[S, B]`.

    A share of what acting at random loses; from the start distribution.
    """
    S, B = reward.shape
    start = mdp.start.to(reward.dtype)
    values, actions = optimal_policy(mdp, reward, horizon=horizon)
    best = start @ values[0]
    base = uniform_base(mdp, reward.dtype)
    at_random = (visitation(mdp, torch.zeros_like(reward[:, :1]), horizon=horizon, log_base=base) * reward).sum(0)
    true = reward[:, :, None].expand(S, B, B).reshape(S, B * B)
    acting = actions[:, :, None].expand(horizon, S, B, B).reshape(horizon, S, B * B)
    achieved = (start @ policy_return(mdp, true, acting, horizon=horizon)).view(B, B)
    return (best[:, None] - achieved) / (best - at_random)[:, None]
