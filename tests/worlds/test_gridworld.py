"""Claims about GridWorld: what a file means, what it compiles to, and how bad files are refused."""

import contextlib
import copy
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsdr_torch.errors import InputError
from bsdr_torch.worlds import GridWorld, world_folder, world_names

N, S, E, W, STAY = range(5)
ALL_WORLDS = world_names("gridworld")
STEPS = {N: (-1, 0), S: (1, 0), E: (0, 1), W: (0, -1), STAY: (0, 0)}


def corner_spec():
    """Five free cells: 0 1 2 over # 3 4, the last of them the goal."""
    return {
        "name": "corner",
        "map": "..m\n#.G\n",
        "terrain": {
            ".": {"name": "grass", "reward_features": {"step": 1}, "rationality_features": {"easy": 1}},
            "m": {"name": "mud", "slip": 0.2, "reward_features": {"step": 1, "dirt": 2.5}},
            "G": {"name": "gate"},
        },
        "reward_features": ["step", "dirt"],
        "rationality_features": ["easy", "dark"],
        "regions": {
            "map": "oxx\n#oo\n",
            "legend": {"o": {"name": "light"}, "x": {"name": "dark", "rationality_features": {"dark": 3}}},
        },
        "start": [[0, 0], [0, 2]],
        "goals": "G",
        "horizon": 7,
    }


@pytest.fixture
def corner():
    return GridWorld.from_spec(corner_spec())


def test_states_are_free_cells_in_reading_order(corner):
    assert corner.cells.tolist() == [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2]]
    assert [corner.state_at(row, col) for row, col in corner.cells.tolist()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("cell", [(1, 0), (-1, 0), (0, 3), (2, 0)])
def test_a_wall_or_outside_has_no_state(corner, cell):
    with pytest.raises(InputError, match=r"corner: row .* is a wall or outside the map of 2 x 3"):
        corner.state_at(*cell)


def test_moves_go_where_the_compass_says_and_walls_and_edges_stop_them(corner):
    intended = corner.mdp.next_state[:, :, 0].tolist()
    assert intended[0] == [0, 0, 1, 0, 0]
    assert intended[1] == [1, 3, 2, 0, 1]
    assert intended[2] == [2, 4, 2, 1, 2]
    assert intended[3] == [1, 3, 4, 3, 3]
    assert intended[4] == [4, 4, 4, 4, 4], "nothing happens on a goal"


def test_slip_goes_to_the_two_sides_half_each_and_never_moves_who_stays(corner):
    assert corner.mdp.num_outcomes == 3
    assert corner.mdp.probability.dtype == torch.float64
    mud = corner.state_at(0, 2)

    def outcomes(state, action):
        chances: dict[int, float] = {}
        for to, p in zip(corner.mdp.next_state[state, action], corner.mdp.probability[state, action], strict=True):
            chances[int(to)] = chances.get(int(to), 0.0) + float(p)
        return {to: p for to, p in chances.items() if p > 0}

    assert outcomes(mud, S) == pytest.approx({4: 0.8, 1: 0.1, 2: 0.1})
    assert outcomes(mud, W) == pytest.approx({1: 0.8, 4: 0.1, 2: 0.1})
    assert outcomes(mud, STAY) == {mud: 1.0}
    assert outcomes(0, E) == {1: 1.0}


def test_goals_are_terminal_and_starts_equally_likely(corner):
    assert corner.mdp.terminal.tolist() == [False, False, False, False, True]
    assert corner.mdp.start.tolist() == [0.5, 0, 0.5, 0, 0]
    assert corner.mdp.start.dtype == torch.float64
    assert corner.horizon == 7


def test_features_are_those_of_the_terrain_plus_those_of_the_region(corner):
    assert corner.reward_feature_names == ("step", "dirt")
    assert corner.reward_features.tolist() == [[1, 0], [1, 0], [1, 2.5], [1, 0], [0, 0]]
    assert corner.rationality_feature_names == ("easy", "dark")
    assert corner.rationality_features.tolist() == [[1, 0], [1, 3], [0, 3], [1, 0], [0, 0]]


def test_a_world_without_slip_or_goals_has_one_outcome_and_no_terminal_states():
    world = GridWorld.load("two_terrains")
    assert world.mdp.num_outcomes == 1
    assert world.mdp.probability is None
    assert world.mdp.terminal is None


def test_anywhere_leaves_out_goals_and_characters_mix_with_cells():
    spec = corner_spec()
    spec["start"] = "anywhere"
    assert GridWorld.from_spec(spec).mdp.start.tolist() == [0.25] * 4 + [0]
    spec["start"] = [".", [0, 2], [0, 0]]
    assert GridWorld.from_spec(spec).mdp.start.tolist() == [0.25] * 4 + [0], "a cell named twice counts once"


def test_view_shows_what_is_around_each_state_with_walls_outside(corner):
    assert corner.channels == ("wall", "terminal", "grass", "mud", "gate", "light", "dark")
    view = corner.view(1)
    assert view.shape == (5, 7, 3, 3)
    assert view.dtype == torch.float32
    around = dict(zip(corner.channels, view[corner.state_at(0, 1)].tolist(), strict=True))
    assert around["wall"] == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert around["terminal"] == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert around["grass"] == [[0, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert around["dark"] == [[0, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert corner.view(0)[:, 0].sum() == 0, "nobody stands in a wall"


def test_views_of_several_worlds_share_channels(corner):
    channels = ["marsh", *reversed(corner.channels)]
    view = corner.view(2, channels)
    assert torch.equal(view[:, 0], torch.zeros(5, 5, 5))
    assert torch.equal(view[:, 1:], corner.view(2).flip(1))


@pytest.mark.parametrize(("radius", "channels"), [(1, ["wall"]), (-1, None), (1, ["twice", "twice"])])
def test_a_view_that_would_drop_something_is_refused(corner, radius, channels):
    with pytest.raises(InputError, match="each of the channels"):
        corner.view(radius, channels)


def test_to_image_puts_values_on_the_map_and_nan_on_walls(corner):
    image = corner.to_image(torch.arange(5))
    assert image[0].tolist() == [0, 1, 2]
    assert math.isnan(image[1, 0])
    assert image[1, 1:].tolist() == [3, 4]
    with pytest.raises(InputError, match=r"one value per state, \[5\], got \[4\]"):
        corner.to_image(torch.zeros(4))


@pytest.mark.parametrize("name", ALL_WORLDS)
def test_a_world_rebuilds_from_its_spec_as_plain_data(name):
    world = GridWorld.load(name)
    again = GridWorld.from_spec(json.loads(json.dumps(world.spec)))
    assert again.spec == world.spec
    assert torch.equal(again.mdp.next_state, world.mdp.next_state)
    assert torch.equal(again.mdp.start, world.mdp.start)
    assert torch.equal(again.reward_features, world.reward_features)
    assert torch.equal(again.rationality_features, world.rationality_features)
    assert torch.equal(again.view(2), world.view(2))


def test_changing_the_data_afterwards_does_not_change_the_world():
    spec = corner_spec()
    world = GridWorld.from_spec(spec)
    spec["terrain"]["."]["name"] = "lava"
    assert world.spec == corner_spec()


@pytest.mark.parametrize("name", ALL_WORLDS)
def test_every_shipped_world_moves_as_drawn_and_costs_nothing_at_the_goal(name):
    world = GridWorld.load(name)
    height, width = world.shape
    terminal = torch.zeros(world.mdp.num_states).bool() if world.mdp.terminal is None else world.mdp.terminal
    for state, (row, col) in enumerate(world.cells.tolist()):
        for action, (down, right) in STEPS.items():
            r, c = row + down, col + right
            free = 0 <= r < height and 0 <= c < width and world.rows[r][c] != "#" and not terminal[state]
            landed = world.cells[world.mdp.next_state[state, action, 0]].tolist()
            assert landed == ([r, c] if free else [row, col])
    assert world.name == name
    assert (world.reward_features >= 0).all()
    assert (world.rationality_features >= 0).all()
    assert (world.reward_features[~terminal].sum(1) > 0).all(), "each step can cost something"
    assert (world.reward_features[terminal] == 0).all()


@pytest.mark.parametrize("name", ["meadow", "orchard", "frozen_lake", "maze", "valley"])
def test_cost_and_rationality_features_cross(name):
    world = GridWorld.load(name)
    both = world.reward_features.T @ world.rationality_features
    assert (both > 0).all(), "every terrain lies in every region, so the two factors can be told apart"


def test_the_shipped_worlds_cover_what_people_need():
    worlds = {name: GridWorld.load(name) for name in ALL_WORLDS}
    assert len(worlds) >= 7
    assert worlds["valley"].shape == (40, 40)
    assert worlds["frozen_lake"].mdp.probability is not None
    assert int(worlds["orchard"].mdp.terminal.sum()) == 3
    assert worlds["two_terrains"].reward_features.tolist() == worlds["two_terrains"].rationality_features.tolist()


def test_a_file_can_be_given_by_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((world_folder("gridworld") / "maze.yaml").read_text())
    assert GridWorld.load(path).name == GridWorld.load(str(path)).name == "maze"


def put(*path_and_value):
    """An edit of a spec: put("terrain", ".", "slip", 2) sets spec["terrain"]["."]["slip"] = 2."""
    *path, last, value = path_and_value

    def edit(spec):
        for key in path:
            spec = spec[key]
        spec[last] = value

    return edit


def drop(*path):
    def edit(spec):
        for key in path[:-1]:
            spec = spec[key]
        del spec[path[-1]]

    return edit


BAD_SPECS = [
    (put("colour", "red"), "unknown key 'colour'; the keys are name, map"),
    (put("terrain", ".", "speed", 2), "terrain..: unknown key 'speed'"),
    (put("regions", "legend", "o", "slip", 0.1), "regions.legend.o: unknown key 'slip'"),
    (drop("horizon"), "the key 'horizon' is missing"),
    (drop("terrain", "m", "name"), "terrain.m: the key 'name' is missing"),
    (put("name", ""), "name: expected text, got ''"),
    (put("about", 3), "about: expected text, got 3"),
    (put("map", "...\n..\n"), "map: is ragged: row 1 ('..') has 2 cells and row 0 has 3"),
    (put("map", "..?\n#.G\n"), "map: row 0, column 2 is '?', which the legend does not name; it has . m G"),
    (put("map", "###\n###\n"), "map: has no free cell"),
    (put("map", ["..m", "#.G"]), "map: expected text, got ['..m', '#.G']"),
    (put("terrain", []), "terrain: expected a mapping of keys to values, got []"),
    (put("terrain", ".", "grass"), "terrain..: expected a mapping of keys to values, got 'grass'"),
    (put("terrain", "##", {"name": "x"}), "terrain: the key '##' is not a character for a map"),
    (put("terrain", "#", {"name": "x"}), "terrain: the key '#' is not a character for a map"),
    (put("terrain", None, {"name": "x"}), "terrain: the key None is not a character for a map: use one visible"),
    (put("terrain", "m", "name", "grass"), "terrain.m.name: 'grass' is taken"),
    (put("terrain", "m", "name", "wall"), "terrain.m.name: 'wall' is taken"),
    (put("terrain", "m", "slip", 1.5), "terrain.m.slip: expected a probability from 0 to 1, got 1.5"),
    (put("terrain", "m", "slip", -0.1), "terrain.m.slip: expected a probability from 0 to 1, got -0.1"),
    (put("terrain", "m", "slip", "often"), "terrain.m.slip: expected a number (from -1e30 to 1e30), got 'often'"),
    (put("terrain", "m", "slip", math.nan), "terrain.m.slip: expected a number"),
    (
        put("terrain", "m", "color", "brown"),
        "terrain.m.color: expected a colour as \"#rrggbb\" (in quotes), got 'brown'",
    ),
    (
        put("terrain", "m", "reward_features", {"stepp": 1}),
        "terrain.m.reward_features: unknown key 'stepp'; the keys are step, dirt",
    ),
    (
        put("terrain", "m", "reward_features", [1, 0, 2]),
        "terrain.m.reward_features: expected a mapping of keys to values, got [1, 0, 2]",
    ),
    (
        put("terrain", "m", "rationality_features", {"easy": True}),
        "terrain.m.rationality_features.easy: expected a number",
    ),
    (put("terrain", "m", "reward_features", {"step": 10**400}), "terrain.m.reward_features.step: expected a number"),
    (put("reward_features", []), "reward_features: expected a list of names, got []"),
    (put("reward_features", ["step", 1]), "reward_features[1]: expected text, got 1"),
    (put("rationality_features", ["easy", "easy"]), "rationality_features: a name is given twice"),
    (put("regions", "map", "ox\n#o\n"), "regions.map: is 2 x 2 cells, but the map is 2 x 3"),
    (put("regions", "map", "oxx\noo#\n"), "regions.map: row 1, column 0 is 'o' where the map has '#'"),
    (put("regions", "map", "oxz\n#oo\n"), "regions.map: row 0, column 2 is 'z', which the legend does not name"),
    (put("regions", "legend", "o", "name", "mud"), "regions.legend: the name 'mud' is also a terrain"),
    (put("start", [[1, 0]]), "start[0]: [1, 0] is a wall; choose a free cell"),
    (put("start", [[0, 0], [5, 0]]), "start[1]: [5, 0] is outside the map of 2 x 3 cells"),
    (put("start", [0, 0]), "start[0]: expected a terrain character (. m G) or a list of [row, column] pairs"),
    (put("start", "q"), "start: expected a terrain character"),
    (put("start", []), "start: is empty"),
    (put("start", [[1, 2]]), "start: [1, 2] is a goal"),
    (drop("start"), "the key 'start' is missing"),
    (put("goals", [[1, 0]]), "goals[0]: [1, 0] is a wall"),
    (put("goals", None), "goals: expected a terrain character"),
    (put("goals", [".", "m", "G"]), "start: [0, 0] is a goal"),
    (put("horizon", 0), "horizon: expected a whole number, at least 1, got 0"),
    (put("horizon", 2.5), "horizon: expected a whole number, at least 1, got 2.5"),
    (put("horizon", True), "horizon: expected a whole number, at least 1, got True"),
    (put("horizon", "long"), "horizon: expected a whole number, at least 1, got 'long'"),
]


@pytest.mark.parametrize(("edit", "message"), BAD_SPECS, ids=[message[:50] for _, message in BAD_SPECS])
def test_bad_data_is_refused_naming_source_and_field(edit, message):
    spec = corner_spec()
    edit(spec)
    with pytest.raises(InputError) as caught:
        GridWorld.from_spec(spec, source="corner.yaml")
    assert str(caught.value).startswith(f"corner.yaml: {message}")


def test_a_character_that_is_nowhere_on_the_map_is_no_start():
    spec = corner_spec()
    spec["terrain"]["s"] = {"name": "sand"}
    spec["start"] = "s"
    with pytest.raises(InputError, match="start: the map has no cell 's'"):
        GridWorld.from_spec(spec)


def test_a_goal_must_be_reachable_and_every_start_must_reach_one():
    spec = corner_spec()
    del spec["regions"]
    spec.update(map=".#.\n.#G\n", start=[[0, 0]], goals="G")
    with pytest.raises(InputError, match=r"spec: goals: the goal at \[1, 2\] cannot be reached from any start"):
        GridWorld.from_spec(spec)
    spec.update(start=[[0, 0], [0, 2]])
    with pytest.raises(InputError, match=r"spec: start: no goal can be reached from the start at \[0, 0\]"):
        GridWorld.from_spec(spec)
    spec.update(map="G.G.\n", start=[[0, 1]], goals=[[0, 0], [0, 2], [0, 3]])
    with pytest.raises(InputError, match=r"the goal at \[0, 3\] cannot be reached"):
        GridWorld.from_spec(spec)


@pytest.mark.parametrize("spec", [None, [], "meadow", 3, {}])
def test_data_that_is_no_mapping_is_refused(spec):
    with pytest.raises(InputError, match=r"^here: expected a mapping"):
        GridWorld.from_spec(spec, source="here")


def places(value, path=()):
    """The path of every value inside a spec."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


@settings(max_examples=150, deadline=None)
@given(
    place=st.sampled_from(list(places(corner_spec()))),
    junk=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_junk_anywhere_is_a_world_or_an_input_error_and_never_another_exception(place, junk):
    spec = copy.deepcopy(corner_spec())
    put(*place, junk)(spec)
    with contextlib.suppress(InputError):
        GridWorld.from_spec(spec, source="junk.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [", "is not valid YAML"),
        (b"name: a\nname: b\n", "the key 'name' is given twice"),
        (b"name: 2001-99-99\n", "is not valid YAML"),
        (b"\xff\xfe\x00", "is not"),
        (b"", "expected a mapping"),
        (b"just text", "expected a mapping"),
        (b"name: x\n", "the key 'map' is missing"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        GridWorld.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_missing_file_or_name_says_what_there_is(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml: there is no such file"):
        GridWorld.load(Path("nowhere.yaml"))
    with pytest.raises(InputError, match=r"no gridworld is called 'medow': choose one of frozen_lake, maze, meadow"):
        GridWorld.load("medow")
