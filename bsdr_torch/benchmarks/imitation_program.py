"""Runs in the environment of the `imitation` package: times it on the world in one file, writes results to another."""

import sys
import time
from types import SimpleNamespace

import numpy as np
from imitation.algorithms.mce_irl import mce_occupancy_measures, mce_partition_fh


def main() -> None:
    """`python imitation_program.py WORLD.npz RESULT.npz REPEATS`; needs nothing of bsdr_torch."""
    world = np.load(sys.argv[1])
    next_state, reward, start = world["next_state"], world["reward"], world["start"]
    S, A = next_state.shape
    transition = np.zeros((S, A, S))
    transition[np.arange(S)[:, None], np.arange(A), next_state] = 1.0
    # The attributes of an environment that the two functions read.
    env = SimpleNamespace(
        horizon=int(world["horizon"]),
        state_dim=S,
        action_dim=A,
        transition_matrix=transition,
        reward_matrix=reward,
        initial_state_dist=start,
    )
    seconds = []
    for _ in range(int(sys.argv[3])):
        started = time.perf_counter()
        values, _, policy = mce_partition_fh(env)
        occupancy, _ = mce_occupancy_measures(env, pi=policy)
        seconds.append(time.perf_counter() - started)
    np.savez(sys.argv[2], values=values, policy=policy, visits=occupancy[:-1].sum(0), seconds=min(seconds))


if __name__ == "__main__":
    main()
