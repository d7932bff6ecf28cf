"""Overcooked kitchens for two, simulated in batches on any device."""

from bsdr_torch.worlds.overcooked.dynamics import happened, step
from bsdr_torch.worlds.overcooked.layout_files import (
    layout_names,
    load_layout,
    load_package_layout,
    package_layout_names,
)
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, DIRECTIONS, Layout
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
    "NUM_ACTIONS",
    "STAY",
    "Layout",
    "cells",
    "check_orders",
    "check_states",
    "counter_objects",
    "from_overcooked",
    "from_records",
    "happened",
    "hash_states",
    "held_objects",
    "layout_names",
    "load_layout",
    "load_package_layout",
    "orientations",
    "package_layout_names",
    "parse_record",
    "pot_codes",
    "pot_contents",
    "pot_ticks",
    "pots_ready",
    "start_states",
    "state_dtype",
    "step",
    "swap_players",
    "to_overcooked",
    "to_records",
    "unique_states",
    "width",
]
