"""`make train`'s configuration, made small, in processes of their own: killed, resumed, and shared by two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
import yaml
from lightning.pytorch.demos.boring_classes import BoringModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bsdr_torch.training import ResumableCheckpoint
from tests.test_scripts import ROOT

EPOCHS, KILLED_IN = 3, 2


def config(folder: Path, data: Path, callbacks: list[dict[str, object]]) -> Path:
    """`scripts/configs/kitchens.yaml` with small networks, few games, and further callbacks."""
    settings = yaml.safe_load((ROOT / "scripts/configs/kitchens.yaml").read_text())
    settings["trainer"]["max_epochs"] = EPOCHS
    for callback in settings["trainer"]["callbacks"]:
        if callback["class_path"].endswith("Baselines"):
            callback["init_args"] = {"names": ["uniform", "habit"], "max_epochs": 1}
        if callback["class_path"].endswith("KitchenPictures"):
            callback["init_args"] = {"situations": 2}
    settings["trainer"]["callbacks"] += callbacks
    small = {name: [8] for name in ("hidden", "habit_hidden", "partner_hidden")}
    settings["model"]["init_args"] |= {**small, "history": 8, "settling": 40}
    settings["data"]["init_args"] |= {"folder": str(data), "layouts": ["cramped_room"], "batch_size": 16}
    path = folder / "kitchens.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def train(*options: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/train.py"), "fit", *map(str, options)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, env=environment)


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_a_killed_run_goes_on_from_its_last_checkpoint(prepared_2020: Path, tmp_path: Path) -> None:
    killer = {"class_path": "tests.kitchens.trial_callbacks.Killed", "init_args": {"epoch": KILLED_IN}}
    killed = train("--config", config(tmp_path, prepared_2020, [killer]), cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    runs = tmp_path / "lightning_logs/kitchens"
    left = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    last = runs / "version_0/checkpoints/last.ckpt"
    done = train("--config", config(tmp_path, prepared_2020, []), "--ckpt_path", last, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before, after = (torch.load(runs / f"version_{n}/checkpoints/last.ckpt", weights_only=True) for n in (0, 1))
    batches = before["global_step"] // KILLED_IN
    assert before["global_step"] == KILLED_IN * batches
    assert after["global_step"] == EPOCHS * batches
    assert [s.step for s in events(runs / "version_1").Scalars("validation/cross_entropy")] == [EPOCHS * batches - 1]
    assert all(path.read_bytes() == content for path, content in left.items())
    ends_with_everything(tmp_path, done.stdout)


class Worsening(BoringModel):
    """A model whose first epoch is its best."""

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("validation/cross_entropy", torch.tensor(float(self.current_epoch)))


@pytest.mark.parametrize("name", ["kitchens", "gridworld", "ileed", "self_play", "bpd", "cramped_room_exact"])
def test_best_and_last_are_what_they_say_also_when_a_run_goes_on(name: str, tmp_path: Path) -> None:
    settings = yaml.safe_load((ROOT / f"scripts/configs/{name}.yaml").read_text())["trainer"]
    chosen = [each["init_args"] for each in settings["callbacks"] if each["class_path"].endswith("Checkpoint")]
    every = settings.get("check_val_every_n_epoch", 1)

    def run(folder: Path, epochs: int, start: Path | None = None) -> dict[str, int]:
        trainer = lightning.Trainer(
            max_epochs=epochs * every,
            check_val_every_n_epoch=every,
            callbacks=[ResumableCheckpoint(folder, **options) for options in chosen],
            limit_train_batches=1,
            limit_val_batches=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
        )
        trainer.fit(Worsening(), ckpt_path=start, weights_only=start and True)
        known = [Path(callback.best_model_path) for callback in trainer.checkpoint_callbacks]  # type: ignore[attr-defined]
        assert known == ([first / "best.ckpt"] if best else []) + [folder / "last.ckpt"]
        return {path.stem: torch.load(path, weights_only=True)["epoch"] for path in folder.glob("*.ckpt")}

    best = {} if name in ("self_play", "bpd") else {"best": every - 1}  # those learn by playing, not from people
    first = tmp_path / "first"
    assert run(first, 3) == {"last": 3 * every - 1, **best}
    assert run(tmp_path / "second", 5, first / "last.ckpt") == {"last": 5 * every - 1}
    assert {path.stem for path in first.glob("*.ckpt")} == {"last", *best}


def ends_with_everything(folder: Path, output: str) -> None:
    """The table, the checkpoint, the line that opens TensorBoard, and what that shows of the run."""
    table = output[output.index("Test cross-entropy") :].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["uniform", "habit", "bsdr"]
    assert table[1].split()[1] == "1.7918"
    assert "tensorboard --logdir lightning_logs" in output
    checkpoint = folder / output.split("Checkpoint:")[1].split()[0]
    assert checkpoint.is_file()
    run = folder / "lightning_logs/kitchens/version_1"
    found = events(run)
    scalars = {"train/cross_entropy", "validation/which_move", "test/stay_or_not", "log_z/cramped_room"}
    assert scalars <= set(found.Tags()["scalars"])
    assert {"reward/cramped_room", "beta/cramped_room", "replay/cramped_room"} <= set(found.Tags()["images"])
    assert "test/cross_entropy" in events(run / "baselines/habit").Tags()["scalars"]
    options = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"rationality" in options
    assert b"protocol" in options
    assert (run / "projector_config.pbtxt").is_file()


def test_two_processes_train_one_model(prepared_2020: Path, tmp_path: Path) -> None:
    path = config(tmp_path, prepared_2020, [{"class_path": "tests.kitchens.trial_callbacks.KeepWeights"}])
    options = ("--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy", "ddp")
    done = train("--config", path, *options, "--data.batch_size", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank_{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert done.stdout.count("Checkpoint:") == 1
