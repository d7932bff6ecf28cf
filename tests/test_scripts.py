"""Each script once in a process of its own, as a user runs it; and in this one, what it says when used otherwise."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
import yaml

from bsdr_torch.baselines.bpd import BPD
from bsdr_torch.baselines.self_play import SelfPlay
from bsdr_torch.contenders import contenders
from bsdr_torch.data.grid_people import SimulatedPeople
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.rollouts import write_rollouts
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.kitchens.kitchen_model import KitchenModel

ROOT = Path(__file__).parent.parent


def run(*arguments: object, cwd: Path, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / str(arguments[0])), *map(str, arguments[1:])]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)


class Inside:
    """Runs a script in this process, which spares the start-up, and gives its exit code, output and errors."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        path = str(ROOT / "scripts" / str(arguments[0]))
        self._monkeypatch.setattr(sys, "argv", [path, *map(str, arguments[1:])])
        code = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = self._capsys.readouterr()
        return code, output.out, output.err


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    return Inside(tmp_path, monkeypatch, capsys)


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


def test_training_goes_on_from_a_checkpoint(trained, tmp_path: Path, inside: Inside) -> None:
    options = ("--config", config(tmp_path), "--ckpt_path", checkpoint(trained[0]), "--trainer.max_epochs", 6)
    code, _, errors = inside("train.py", "fit", *options)
    assert code == 0, errors
    resumed = torch.load(checkpoint(tmp_path), weights_only=True)
    assert resumed["global_step"] == 6


def test_a_checkpoint_can_be_validated_and_tested(trained, tmp_path: Path, inside: Inside) -> None:
    for command in ("validate", "test"):
        options = ("--config", config(tmp_path), "--ckpt_path", checkpoint(trained[0]))
        code, output, errors = inside("train.py", command, *options)
        assert code == 0, errors
        assert "cross_entropy" in output


def test_predictions_are_written_for_every_decision(trained, tmp_path: Path) -> None:
    data = SimulatedPeople(["two_rooms"], humans=3, rollouts=3, held_out=1, seed=0)
    rollouts = data.parts["two_rooms"].test
    write_rollouts(tmp_path / "rollouts.csv", {"two_rooms": rollouts}, data.humans)
    done = run("predict.py", checkpoint(trained[0]), "rollouts.csv", "--out", "p.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert table.num_rows == len(rollouts.steps().state)
    assert {"probability", "beta", "cost", "p_STAY"} <= set(table.column_names)


def test_those_who_learn_by_playing_are_trained_by_config_and_kept_for_the_table(
    prepared_2020: Path, tmp_path: Path, inside: Inside
) -> None:
    data = KitchenPeople(str(prepared_2020), ["cramped_room"])
    small = {"iterations": 1, "games": 2}
    for name, kind, budget in (("self_play", SelfPlay, small), ("bpd", BPD, {**small, "lessons": 1})):
        path = ROOT / f"scripts/configs/{name}.yaml"
        options = [f"--model.{option}={value}" for option, value in budget.items()]
        code, output, errors = inside(
            *("train.py", "fit", "--config", path, f"--data.folder={prepared_2020}"),
            *("--data.layouts=[cramped_room]", "--trainer.accelerator=cpu", *options),
        )
        assert code == 0, errors
        assert kind.__name__ in output
        assert "Earned by pairs in 400 steps" in output
        assert (tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt").is_file()
        as_configured = yaml.safe_load(path.read_text())["model"]["init_args"]
        model = kind(data.specs, data.humans, data.named, **(as_configured | budget))
        kept = model.path_of("cramped_room")
        assert kept is not None
        assert kept.is_file()
        # What the table would train is what the configuration trains.
        row = next(row for key, row in contenders().items() if key.startswith(name.replace("_", "-")))
        settings = {option: value for option, value in row.settings.items() if option != "kitchens"}
        made = [kind(data.specs, data.humans, data.named, **options) for options in (as_configured, settings)]
        assert made[0].path_of("cramped_room") == made[1].path_of("cramped_room")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bsdr_is_trained_by_config_as_for_the_table(protocol: str) -> None:
    settings = yaml.safe_load((ROOT / "scripts/configs/kitchens.yaml").read_text())["model"]["init_args"]
    model, overlay = inspect.signature(KitchenModel).parameters, ROOT / f"scripts/configs/protocol_{protocol}.yaml"
    if overlay.exists():
        added = yaml.safe_load(overlay.read_text())
        settings |= added["model"]["init_args"]
        assert added["data"]["init_args"]["protocol"] == protocol
    else:
        assert protocol == "rollout"
    row = contenders()["bsdr-arbitrated"].settings
    wanted = {name: value for name, value in (row | row["under"][protocol]).items() if name in model}
    if overlay.exists():
        assert added["trainer"]["max_epochs"] == row["under"][protocol]["max_epochs"]
    for name, value in wanted.items():
        assert settings.get(name, model[name].default) == value, name


SECTIONS = {
    "recovery": "The paper's figure; How much data it takes; Against the other rationality models; "
    "With learned features; One human",
    "kitchen_recovery": "How well rationality is recovered; Against the other rationality models",
    "shared_goals": "Distances; Permutation tests; All numbers",
    "reward_generalization": "Regret; Returns; All worlds together; World by world, 20 people",
    "action_prediction": "Cross-entropy; Differences",
    "suboptimality_transfer": "Cross-entropy in the new world; Differences",
    "goal_inference": "Likelihood of the true goal; What state-dependence gains; Calibration",
    "kitchen_shared_goals": "Similarity; Loss with another's reward; Permutation tests; Weights",
    "kitchen_rewards": "Soups; Returns; Differences",
    "kitchen_transfer": "Gains; Exact plans; KitchenModel",
    "kitchen_goals": "Likelihood of what was done next; What state-dependence gains; At every step; Controls",
    "online_adaptation": "Cross-entropy by steps seen",
}


def test_all_experiments_write_their_reports(tmp_path: Path) -> None:
    done = run("experiment.py", "all", "--out", "results", "--quick", cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "results/README.md").read_text()
    records = {}
    for name, sections in SECTIONS.items():
        folder = tmp_path / "results" / name
        records[name] = json.loads((folder / "results.json").read_text())
        # Networks are trained for a number of steps; all other fits go on until their gradient vanishes.
        assert name == "kitchen_recovery" or all(record["converged"] for record in records[name]), name
        report = (folder / "report.md").read_text()
        assert f"`scripts/experiment.py {name} --out DIR --quick`" in report
        for section in ("What was found", *sections.split("; ")):
            assert f"## {section}\n" in report, (name, section)
        assert "nan" not in report
        figures = re.findall(r"\]\((\w+\.png)\)", report)
        assert figures
        assert all((folder / figure).stat().st_size > 10_000 for figure in figures)
        assert f"({name}/report.md)" in summary
    check_effects(records)


def check_effects(records: dict[str, list[dict[str, Any]]]) -> None:
    """Where the full runs find an effect, the small ones point the same way; where there is none, it is small."""

    def mean(experiment: str, measure: str, /, **fields: object) -> float:
        rows = [r[measure] for r in records[experiment] if all(r[name] == value for name, value in fields.items())]
        assert rows
        return float(sum(rows) / len(rows))

    def gain(experiment: str, measure: str, other: str = "br_per_human", /, **fields: object) -> float:
        return mean(experiment, measure, model="bsdr", **fields) - mean(experiment, measure, model=other, **fields)

    people = {"humans": 20, "rollouts": 8}
    assert mean("recovery", "theta_R_cosine", people="state-dependent", model="bsdr", **people) > 0.99
    assert gain("recovery", "heldout_gap", people="state-dependent", **people) < -0.01
    assert gain("recovery", "heldout_gap", people="constant", **people) < 0.005
    assert mean("kitchen_recovery", "beta_rank", people="state-dependent", model="bsdr") > 0.3
    assert gain("kitchen_recovery", "excess", "br", people="state-dependent") < -0.02
    assert abs(gain("kitchen_recovery", "excess", "br", people="alike")) < 0.02
    for measure in ("distance", "regret"):
        assert mean("shared_goals", "effect", goals="shared", measure=measure) > 0.3
        assert abs(mean("shared_goals", "effect", goals="own", measure=measure)) < 0.2
    assert gain("reward_generalization", "regret", people=20, dependence=2.0, places="own") < 0
    assert gain("reward_generalization", "regret", people=20, dependence=2.0, places="common") < -0.05
    assert abs(gain("reward_generalization", "regret", people=20, dependence=0.0)) < 0.005
    assert gain("action_prediction", "excess", rule="bsdr", dependence=2.0) < -0.05
    assert abs(gain("action_prediction", "excess", rule="lapses", dependence=2.0)) < 0.02
    assert abs(gain("action_prediction", "excess", dependence=0.0)) < 0.01
    assert gain("suboptimality_transfer", "excess", people_are="state-dependent") < -0.03
    assert gain("suboptimality_transfer", "excess", "bsdr_population", people_are="state-dependent") < -0.03
    assert abs(gain("suboptimality_transfer", "excess", people_are="constant")) < 0.01
    assert abs(gain("suboptimality_transfer", "excess", "bsdr_population", people_are="alike")) < 0.01
    learned = mean("kitchen_rewards", "soups", model="bsdr", kitchen="cramped_room", source="cramped_room")
    assert learned > 2 > mean("kitchen_rewards", "soups", model="random")
    walked = {"evidence": "own", "seen_as": "part", "seen": 1.0}
    assert gain("kitchen_goals", "likelihood", "prior", **walked) > 0.05
    told_another = mean("kitchen_goals", "log_score", model="bsdr", evidence="another walk", seen_as="every step")
    assert told_another < mean("kitchen_goals", "log_score", model="prior", seen_as="every step")
    assert gain("goal_inference", "likelihood", dependence=1.5, seen_as="part") > 0.005
    assert abs(gain("goal_inference", "likelihood", dependence=0.0, seen_as="part")) < 0.01


@pytest.mark.parametrize("script", ["train.py", "predict.py", "experiment.py", "evaluate.py", "tune.py"])
def test_help_says_what_the_script_does(script: str, inside: Inside) -> None:
    code, output, _ = inside(script, "--help")
    assert code == 0
    assert "usage:" in output


def edited(folder: Path, **changes: object) -> Path:
    path = config(folder)
    settings = yaml.safe_load(path.read_text())
    settings["data"]["init_args"] |= changes
    path.write_text(yaml.safe_dump(settings))
    return path


def test_bad_input_ends_in_one_line_and_exit_code_2(
    trained, prepared_2019: Path, tmp_path: Path, inside: Inside
) -> None:
    good = checkpoint(trained[0])
    (tmp_path / "cut.ckpt").write_bytes(good.read_bytes()[:1000])
    header = "world,human,rollout,step,state,action\n"
    (tmp_path / "action.csv").write_text(header + "two_rooms,a,0,0,0,77\ntwo_rooms,a,0,1,0,-1\n")
    (tmp_path / "jump.csv").write_text(header + "two_rooms,a,0,0,0,4\ntwo_rooms,a,0,1,12,-1\n")
    (tmp_path / "file").write_text("")
    (tmp_path / "ragged.yaml").write_text("name: ragged\nmap: |\n  ..\n  .\n")
    (tmp_path / "no_data.yaml").write_text("model: {}\n")
    (tmp_path / "unknown_key.yaml").write_text(config(tmp_path).read_text() + "colour: blue\n")
    narrow = edited(tmp_path, theta_R=[1.0]).rename(tmp_path / "narrow.yaml")
    ragged = edited(tmp_path, worlds=["ragged.yaml"]).rename(tmp_path / "ragged_world.yaml")
    cases = [
        (("predict.py", "cut.ckpt", "action.csv"), "cut.ckpt: not a checkpoint"),
        (("predict.py", good, "action.csv"), "action.csv, world two_rooms: rollout 0, step 0: action is 77"),
        (("predict.py", good, "jump.csv"), "action 4 in state 0 cannot lead to state 12"),
        (("predict.py", good, "nothing.csv"), "nothing.csv: no such file"),
        (("predict.py", good), "GAMES"),
        (("experiment.py", "recovery", "--out", "file"), "--out is a file"),
        (("experiment.py", "alchemy", "--out", "x"), "invalid choice"),
        (("experiment.py", "recovery", "--out", "x", "--seeds", "0"), "1 or more"),
        (("evaluate.py", "--out", "x", "--models", "oracle"), "--models: 'oracle' is not one of uniform,"),
        (("evaluate.py", "--out", "x", "--protocols", "people"), "invalid choice"),
        (("evaluate.py", "--out", "x", "--seeds", "0"), "--seeds must be 1 or more"),
        (("evaluate.py", "--out", "x", "--against", "oracle"), "against: 'oracle' is not in the table"),
        (("evaluate.py", "--out", "file"), "--out is a file"),
        (("evaluate.py", "--out", "x", "--data", "nothing"), "nothing: no prepared data there"),
        (("tune.py", "bsdr", "--protocol", "human", "forget"), "forget: expected NAME=VALUE"),
        (("train.py", "fit", "--config", ragged), "ragged.yaml"),
        (("train.py", "fit", "--config", narrow), "theta_R must have shape"),
        (("train.py", "fit", "--config", "no_data.yaml"), "data"),
        (("train.py", "fit", "--config", "unknown_key.yaml"), "colour"),
        (("train.py", "fit", "--config", "missing.yaml"), "missing.yaml"),
        (
            ("train.py", "fit", "--model=KitchenModel", "--data=KitchenPeople", "--data.folder=nowhere"),
            "nowhere: no prepared data there",
        ),
        (
            ("train.py", "fit", "--model=HumanModel", "--data=KitchenPeople", f"--data.folder={prepared_2019}"),
            "HumanModel learns from people in GridWorlds",
        ),
        (("train.py", "fit", "--config", config(tmp_path), "--ckpt_path", "cut.ckpt"), "cut.ckpt: not a checkpoint"),
    ]
    for arguments, message in cases:
        code, _, errors = inside(*arguments)
        assert code == 2, (arguments, errors)
        assert message in errors
        assert "Traceback" not in errors
    assert not (tmp_path / "predictions.parquet").exists()
    assert not list(tmp_path.glob("lightning_logs/*/*/checkpoints"))
