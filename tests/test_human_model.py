from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from bsdr_torch.data.grid_people import RolloutData, SimulatedPeople, StepBatch
from bsdr_torch.errors import InputError
from bsdr_torch.human_model import HumanModel
from bsdr_torch.objective import map_loss
from bsdr_torch.soft_bellman import soft_values
from tests import ddp_program

ROOT = Path(__file__).parents[1]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def people(**options: Any) -> SimulatedPeople:
    return SimulatedPeople(**({"worlds": ["two_rooms"], "humans": 4, "rollouts": 3, "held_out": 1} | options))


def trainer(folder: Path, **options: Any) -> lightning.Trainer:
    settings = {
        "accelerator": "cpu",
        "precision": "64-true",
        "max_epochs": 4,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    return lightning.Trainer(**(settings | options))


def parameters(model: HumanModel) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("rationality", ["br", "br_per_human", "irleed", "bsdr"])
@pytest.mark.parametrize("features", ["fixed", "mlp", "cnn"])
def test_every_model_learns(tmp_path: Path, rationality: Any, features: Any) -> None:
    torch.manual_seed(0)
    data = people()
    model = HumanModel(data.specs, data.humans, rationality, features, learning_rate=0.03, hidden=4, view_radius=1)
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    before = float(fit.callback_metrics["train/total"])
    fit = trainer(tmp_path, max_epochs=15)
    fit.fit(model, data)
    assert float(fit.callback_metrics["train/total"]) < before


def test_the_training_loss_is_the_negative_log_posterior_per_action() -> None:
    data = people(humans_per_chunk=2)
    model = HumanModel(data.specs, data.humans).double()
    chunks = data.chunks("train", 2).chunks
    model.log_dict = lambda *_, **__: None  # type: ignore[method-assign]  # there is no trainer here
    losses = torch.stack([model.training_step(chunk, 0) for chunk in chunks])
    (whole,) = data.chunks("train").chunks
    mdp, problem = model._planning("two_rooms")
    reward = model.reward("two_rooms", whole.humans)
    expected = map_loss(whole.evidence, reward, soft_values(mdp, reward, **problem), model.log_prior())
    torch.testing.assert_close(losses.mean(), expected.total)
    batch, actions, _ = whole.decisions()
    nll = -model.action_log_probs(batch).gather(1, actions[:, None]).mean()
    uniform = torch.log(torch.tensor(5.0, dtype=torch.float64))  # the base measure is left out of the loss
    torch.testing.assert_close(expected.data + expected.log_z + uniform, nll)


def test_shared_features_use_one_featurizer() -> None:
    data = people()
    model = HumanModel(data.specs, data.humans, features="mlp", share_features=True)
    assert model.phi_beta is model.phi_R
    separate = HumanModel(data.specs, data.humans, features="mlp")
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in separate.parameters())


def test_several_worlds_train_together(tmp_path: Path) -> None:
    worlds = [spec_with_name(name) for name in ("first", "second")]
    for i, spec in enumerate(worlds):
        (tmp_path / f"{i}.yaml").write_text(spec)
    data = people(worlds=[str(tmp_path / f"{i}.yaml") for i in range(2)])
    model = HumanModel(data.specs, data.humans, features="cnn", hidden=4)
    trainer(tmp_path).fit(model, data)
    assert model.cost("first").shape == model.cost("second").shape
    with pytest.raises(InputError, match="knows first, second"):
        model.action_log_probs(StepBatch("third", *torch.zeros(3, 1, dtype=torch.int64)))


def spec_with_name(name: str) -> str:
    from bsdr_torch.worlds.files import world_folder

    text = (world_folder("gridworld") / "two_rooms.yaml").read_text()
    assert "name: two_rooms" in text
    return text.replace("name: two_rooms", f"name: {name}", 1)


def test_prediction_from_a_checkpoint_equals_prediction_at_the_end_of_training(tmp_path: Path) -> None:
    data = people()
    model = HumanModel(data.specs, data.humans, features="mlp", hidden=4)
    fit = trainer(tmp_path)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "model.ckpt")
    batch, _, _ = data.chunks("test").chunks[0].decisions()
    expected = model.eval().action_log_probs(batch)
    loaded = HumanModel.read(tmp_path / "model.ckpt")
    torch.testing.assert_close(loaded.action_log_probs(batch), expected)
    same = HumanModel.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert same.humans == data.humans


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_training_resumes_to_the_same_result(tmp_path: Path, optimizer: Any) -> None:
    def new() -> tuple[RolloutData, HumanModel]:
        torch.manual_seed(1)
        data = people(humans_per_chunk=0 if optimizer == "lbfgs" else 1)
        rate = 1.0 if optimizer == "lbfgs" else 0.05
        return data, HumanModel(
            data.specs, data.humans, features="mlp", hidden=4, optimizer=optimizer, learning_rate=rate
        )

    data, whole = new()
    trainer(tmp_path, max_epochs=6).fit(whole, data)
    data, first = new()
    checkpoints = ModelCheckpoint(tmp_path / "half", save_last=True)
    trainer(tmp_path, max_epochs=3, callbacks=[checkpoints], enable_checkpointing=True).fit(first, data)
    data, second = new()
    resumed = trainer(tmp_path, max_epochs=6, callbacks=[ModelCheckpoint(tmp_path / "rest")], enable_checkpointing=True)
    resumed.fit(second, data, ckpt_path=tmp_path / "half" / "last.ckpt", weights_only=True)
    assert not torch.equal(parameters(first), parameters(whole))
    torch.testing.assert_close(parameters(second), parameters(whole), rtol=0, atol=0)


def test_two_ddp_processes_train_to_the_parameters_of_one(tmp_path: Path) -> None:
    out = tmp_path / "parameters.pt"
    command = [sys.executable, "-m", "tests.ddp_program", "2", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(out), ddp_program.fit(1), rtol=0.0, atol=1e-10)


def test_endless_problems_start_where_the_last_step_ended() -> None:
    data = people()
    model = HumanModel(data.specs, data.humans)
    first, second = (model._planning("two_rooms")[1]["solver"].warm_start for _ in range(2))
    assert first is not None
    assert first is second


def test_bad_checkpoints_are_refused_with_their_name(tmp_path: Path) -> None:
    data = people()
    model = HumanModel(data.specs, data.humans)
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    good = tmp_path / "good.ckpt"
    fit.save_checkpoint(good)
    with pytest.raises(InputError, match=r"missing\.ckpt: no such checkpoint"):
        HumanModel.read(tmp_path / "missing.ckpt")
    cut = tmp_path / "cut.ckpt"
    cut.write_bytes(good.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"cut\.ckpt: not a checkpoint that can be read"):
        HumanModel.read(cut)
    foreign = tmp_path / "foreign.ckpt"
    torch.save({"state_dict": {}}, foreign)
    with pytest.raises(InputError, match=r"foreign\.ckpt: not a checkpoint of this version of bsdr_torch"):
        HumanModel.read(foreign)
    with_code = tmp_path / "code.ckpt"
    torch.save({"x": print}, with_code)
    with pytest.raises(InputError, match=r"code\.ckpt: not a checkpoint that can be read"):
        HumanModel.read(with_code)
    changed = torch.load(good, weights_only=True)
    changed["state_dict"]["rationality.raw_theta_R"] = torch.zeros(17)
    torch.save(changed, tmp_path / "changed.ckpt")
    with pytest.raises(InputError, match=r"changed\.ckpt: the checkpoint does not fit its own settings"):
        HumanModel.read(tmp_path / "changed.ckpt")


def test_a_model_needs_a_world() -> None:
    with pytest.raises(InputError, match="at least one world"):
        HumanModel([], ["a", "b"])
