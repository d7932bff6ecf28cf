"""Each script once as a user would run it, and what it says when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
import yaml

from bsdr_torch.data.people import SimulatedPeople
from bsdr_torch.data.rollouts import write_rollouts

ROOT = Path(__file__).parent.parent


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / str(arguments[0])), *map(str, arguments[1:])]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)


def config(folder: Path) -> Path:
    """The GridWorld configuration, made small."""
    settings = yaml.safe_load((ROOT / "scripts/configs/gridworld.yaml").read_text())
    settings["trainer"]["max_epochs"] = 4
    settings["data"]["init_args"] = {"worlds": ["two_rooms"], "humans": 3, "rollouts": 3, "held_out": 1}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("run")
    done = run("train.py", "fit", "--config", config(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def checkpoint(folder: Path) -> Path:
    return folder / "lightning_logs/gridworld/version_0/checkpoints/last.ckpt"


def test_training_ends_with_a_table_a_checkpoint_and_tensorboard(trained) -> None:
    folder, done = trained
    assert "bsdr, fitted" in done.stdout
    assert "the people themselves" in done.stdout
    assert "tensorboard --logdir" in done.stdout
    assert checkpoint(folder).is_file()


def test_tensorboard_has_losses_errors_gradients_and_pictures(trained) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained[0] / "lightning_logs/gridworld/version_0"))
    events.Reload()
    tags = events.Tags()
    assert {"train/total", "train/data", "train/log_z", "train/prior"} <= set(tags["scalars"])
    assert {"validation/cross_entropy", "gradient/all", "gradient/theta_R"} <= set(tags["scalars"])
    assert {"truth/two_rooms/theta_R_cosine", "truth/two_rooms/beta_relative_error"} <= set(tags["scalars"])
    assert "maps/two_rooms" in tags["images"]


def test_training_goes_on_from_a_checkpoint(trained, tmp_path: Path) -> None:
    options = ("--config", config(tmp_path), "--ckpt_path", checkpoint(trained[0]), "--trainer.max_epochs", 6)
    done = run("train.py", "fit", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    resumed = torch.load(checkpoint(tmp_path), weights_only=True)
    assert resumed["epoch"] == 5


def test_a_checkpoint_can_be_validated_and_tested(trained, tmp_path: Path) -> None:
    for command in ("validate", "test"):
        options = ("--config", config(tmp_path), "--ckpt_path", checkpoint(trained[0]))
        done = run("train.py", command, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "cross_entropy" in done.stdout


def test_predictions_are_written_for_every_decision(trained, tmp_path: Path) -> None:
    data = SimulatedPeople(["two_rooms"], humans=3, rollouts=3, held_out=1, seed=0)
    rollouts = data.parts["two_rooms"].test
    write_rollouts(tmp_path / "rollouts.csv", {"two_rooms": rollouts}, data.humans)
    done = run("predict.py", checkpoint(trained[0]), "rollouts.csv", "--out", "p.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert table.num_rows == len(rollouts.steps().state)
    assert {"probability", "beta", "cost", "p_STAY"} <= set(table.column_names)


def test_the_recovery_experiment_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("experiment.py", "recovery", "--out", "report", "--quick", "--seeds", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "report/results.json").read_text())
    fields = "world, model, humans, rollouts, seed, theta_R_cosine, beta_relative_error, regret, heldout_gap, converged"
    assert all(set(fields.split(", ")) <= set(record) for record in records)
    report = (tmp_path / "report/report.md").read_text()
    for figure in ("posterior", "amounts", "models", "one_human", "maps"):
        assert f"({figure}.png)" in report
        assert (tmp_path / f"report/{figure}.png").stat().st_size > 10_000

    def only(people: str, model: str, humans: int) -> dict:
        (found,) = (r for r in records if (r["people"], r["model"], r["humans"]) == (people, model, humans))
        return found

    bsdr = only("state-dependent", "bsdr", 20)
    assert bsdr["theta_R_cosine"] > 0.99
    assert bsdr["heldout_gap"] < 0.01
    assert bsdr["heldout_gap"] < only("state-dependent", "br_per_human", 20)["heldout_gap"] - 0.01
    constant = only("constant", "bsdr", 20)["heldout_gap"] - only("constant", "br_per_human", 20)["heldout_gap"]
    assert constant < 0.01


@pytest.mark.parametrize("script", ["train.py", "predict.py", "experiment.py"])
def test_help_says_what_the_script_does(script: str, tmp_path: Path) -> None:
    done = run(script, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "usage:" in done.stdout


def edited(folder: Path, **changes: object) -> Path:
    path = config(folder)
    settings = yaml.safe_load(path.read_text())
    settings["data"]["init_args"] |= changes
    path.write_text(yaml.safe_dump(settings))
    return path


def test_bad_input_ends_in_one_line_and_exit_code_2(trained, tmp_path: Path) -> None:
    good = checkpoint(trained[0])
    (tmp_path / "cut.ckpt").write_bytes(good.read_bytes()[:1000])
    (tmp_path / "rollouts.csv").write_text("world,human,rollout,step,state,action\ntwo_rooms,a,0,0,0,77\n")
    (tmp_path / "file").write_text("")
    (tmp_path / "ragged.yaml").write_text("name: ragged\nmap: |\n  ..\n  .\n")
    no_data = config(tmp_path / "..").read_text().split("data:")[0]
    (tmp_path / "no_data.yaml").write_text(no_data)
    cases = [
        (("predict.py", "cut.ckpt", "rollouts.csv"), "cut.ckpt: not a checkpoint"),
        (("predict.py", good, "rollouts.csv"), "rollouts.csv, world two_rooms: rollout 0, step 0: action is 77"),
        (("predict.py", good, "nothing.csv"), "nothing.csv: no such file"),
        (("predict.py", good), "ROLLOUTS"),
        (("experiment.py", "recovery", "--out", "file"), "--out is a file"),
        (("experiment.py", "alchemy", "--out", "x"), "invalid choice"),
        (("train.py", "fit", "--config", edited(tmp_path, worlds=["ragged.yaml"])), "ragged.yaml"),
        (("train.py", "fit", "--config", "no_data.yaml"), "data"),
        (("train.py", "fit", "--config", "missing.yaml"), "missing.yaml"),
    ]
    for arguments, message in cases:
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 2, (arguments, done.stderr)
        assert message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "predictions.parquet").exists()
    assert not (tmp_path / "lightning_logs").exists()
