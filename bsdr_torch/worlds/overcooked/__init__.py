"""Overcooked kitchens for two, simulated in batches on any device."""

from bsdr_torch.worlds.overcooked.drawing import describe_state, draw_rollout, draw_state, save_rollout
from bsdr_torch.worlds.overcooked.dynamics import JOINT_ACTIONS, happened, step, successor_outcomes, successors
from bsdr_torch.worlds.overcooked.graph import KitchenGraph, enumerate_kitchen
from bsdr_torch.worlds.overcooked.graph_cache import load_graph
from bsdr_torch.worlds.overcooked.gym_env import OvercookedEnv, OvercookedVectorEnv
from bsdr_torch.worlds.overcooked.layout_files import (
    layout_names,
    load_layout,
    load_package_layout,
    package_layout_names,
)
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, DIRECTIONS, Layout
from bsdr_torch.worlds.overcooked.limits import Limits
from bsdr_torch.worlds.overcooked.records import (
    check_orders,
    from_overcooked,
    from_records,
    parse_record,
    start_states,
    to_overcooked,
    to_records,
)
from bsdr_torch.worlds.overcooked.rules import ACTIONS, EVENTS, INTERACT, NUM_ACTIONS, STAY
from bsdr_torch.worlds.overcooked.shaping import shaped_rewards
from bsdr_torch.worlds.overcooked.state import (
    cells,
    check_states,
    counter_objects,
    hash_states,
    held_objects,
    orientations,
    pot_codes,
    pot_contents,
    pot_ticks,
    pots_ready,
    state_dtype,
    swap_players,
    unique_states,
    width,
)

__all__ = [
    "ACTIONS",
    "CONTENTS",
    "DIRECTIONS",
    "EVENTS",
    "INTERACT",
    "JOINT_ACTIONS",
    "NUM_ACTIONS",
    "STAY",
    "KitchenGraph",
    "Layout",
    "Limits",
    "OvercookedEnv",
    "OvercookedVectorEnv",
    "cells",
    "check_orders",
    "check_states",
    "counter_objects",
    "describe_state",
    "draw_rollout",
    "draw_state",
    "enumerate_kitchen",
    "from_overcooked",
    "from_records",
    "happened",
    "hash_states",
    "held_objects",
    "layout_names",
    "load_graph",
    "load_layout",
    "load_package_layout",
    "orientations",
    "package_layout_names",
    "parse_record",
    "pot_codes",
    "pot_contents",
    "pot_ticks",
    "pots_ready",
    "save_rollout",
    "shaped_rewards",
    "start_states",
    "state_dtype",
    "step",
    "successor_outcomes",
    "successors",
    "swap_players",
    "to_overcooked",
    "to_records",
    "unique_states",
    "width",
]
