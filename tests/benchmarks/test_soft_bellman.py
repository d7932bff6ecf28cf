from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from bsdr_torch.benchmarks import peers
from bsdr_torch.benchmarks import soft_bellman as benchmark
from bsdr_torch.benchmarks.measure import Record, table

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_the_engine_and_plain_autograd_measure_the_same_thing() -> None:
    torch.testing.assert_close(benchmark.engine(60, 3, 7)(), benchmark.plain_autograd(60, 3, 7)())


def test_the_grid_has_the_states_asked_for_and_moves_between_neighbours() -> None:
    world = benchmark.grid(12)  # 3 x 4
    assert world.next_state[5, :, 0].tolist() == [5, 1, 9, 4, 6]
    assert world.next_state[0, :, 0].tolist() == [0, 0, 4, 0, 1]


def test_the_kitchen_shares_the_partner_between_the_actions() -> None:
    world = benchmark.kitchen("forced_coordination", 0)
    assert world.next_state.shape == (world.num_states, 6, 6)
    assert world.probability is not None
    assert world.probability.shape == (world.num_states, 1, 6)


def test_the_engine_beside_a_peer_gives_values_and_visits() -> None:
    values, visits = peers.solve(12, 4)()
    assert values.shape == (5, 12, 1)
    torch.testing.assert_close(visits.sum(), torch.tensor(4.0, dtype=torch.float64))


def test_a_table_lines_its_columns_up() -> None:
    lines = table([Record("a", 1.0, "s", "x"), Record("longer", 12.5, "MB", "y")]).splitlines()
    assert [line.index(word) for line, word in zip(lines, ["against", "x", "y"], strict=True)] == [21, 21, 21]


def test_the_script_writes_the_records_it_prints(tmp_path: Path) -> None:
    out = tmp_path / "records.json"
    figure = tmp_path / "scaling.png"
    done = run("soft-bellman", "--quick", "--json", str(out), "--figure", str(figure))
    assert done.returncode == 0, done.stderr
    records = json.loads(out.read_text())
    assert all(set(record) == {"name", "value", "unit", "against"} for record in records)
    names = [record["name"] for record in records]
    assert {"time_vs_autograd", "memory_vs_autograd", "memcpy_share", "joint_sweep_ns"} <= set(names)
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert all(name in done.stdout for name in names)


def test_bad_arguments_end_in_one_message_and_exit_code_2(tmp_path: Path) -> None:
    missing = run("--json", str(tmp_path / "nowhere" / "records.json"))
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: ")
    assert "nowhere" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert run("no-such-benchmark").returncode == 2
