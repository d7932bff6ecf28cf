from __future__ import annotations

from pathlib import Path

import lightning
import pytest
import torch

from bsdr_torch.baselines.joint_optimum import best_rewards
from bsdr_torch.baselines.kitchen_games import KitchenGames
from bsdr_torch.baselines.self_play import Agent, SelfPlay, teach
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import layout_to_json
from bsdr_torch.predictor import Predictor
from bsdr_torch.saved_models import SavedModel
from bsdr_torch.worlds.overcooked import Layout, enumerate_kitchen, load_layout

SMALL = {"hidden": [8], "iterations": 2, "games": 4, "practice": {"steps": 10, "batch_size": 40}}


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"])


def small(data: KitchenPeople, **settings: object) -> SelfPlay:
    return SelfPlay(data.specs, data.humans, data.named, **(SMALL | settings))  # type: ignore[arg-type]


def test_two_copies_learn_to_earn_most_of_the_joint_optimum(tiny_kitchen: Layout) -> None:
    graph, horizon = enumerate_kitchen(tiny_kitchen), 100
    best = float(best_rewards(graph, horizon) @ graph.start)
    practice = {"steps": 25, "learning_rate": 3e-3, "batch_size": 800, "epochs": 3, "entropy": 0.02}
    model = SelfPlay([layout_to_json(tiny_kitchen)], [], [], [64], 60, 64, horizon, 1.0, practice)
    generator = torch.Generator().manual_seed(0)
    before = model.rewards(tiny_kitchen.name, 32, generator).mean()
    after = teach(model, 0).rewards(tiny_kitchen.name, 32, generator).mean()
    assert float(before) < 0.1 * best
    assert 0.5 * best < float(after) <= best


def test_games_share_rewards_start_again_and_count_only_whole_ones() -> None:
    games = KitchenGames(load_layout("cramped_room"), 4, horizon=20, stagger=10)
    assert games.steps.tolist() == [0, 10, 0, 10]
    start = games.states.clone()
    generator = torch.Generator().manual_seed(0)
    for t in range(1, 21):
        rewards, over = games.play(torch.randint(6, (8,), generator=generator))
        assert torch.equal(rewards[:4], rewards[4:])
        assert over.view(2, 4).tolist() == [[t == 20, t == 10] * 2] * 2
    assert torch.equal(games.states[[0, 2]], start[[0, 2]])
    assert len(games.finished()) == 2
    assert len(games.finished()) == 0


def test_what_was_taught_once_comes_from_the_folder_whatever_the_people(data: KitchenPeople, tmp_path: Path) -> None:
    first = teach(small(data, taught=str(tmp_path)), 0)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    assert len(kept) == 2
    again = teach(small(data, taught=str(tmp_path), tempered=True), 0)
    other = teach(small(data, taught=str(tmp_path)), 1)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list(tmp_path.glob("*.pt"))) == 4
    steps = data.steps("test")["cramped_room"]
    assert torch.equal(first.action_log_probs(steps), again.action_log_probs(steps))
    assert not torch.allclose(first.action_log_probs(steps), other.action_log_probs(steps))


def test_training_by_lightning_ends_when_all_are_done_and_keeps_what_would_have_been_taught(
    prepared_2020: Path, tmp_path: Path
) -> None:
    data = KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"], batch_size=4)
    lightning.seed_everything(3)
    model = small(data, taught=str(tmp_path))
    trainer = lightning.Trainer(
        max_epochs=100, logger=False, enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0
    )
    trainer.fit(model, datamodule=data)
    assert trainer.current_epoch <= 2
    kept = sorted(tmp_path.glob("*.pt"))
    assert len(kept) == 2
    taught = teach(small(data), 3)
    for path in kept:
        player = taught.players[path.name.rsplit("-", 1)[0]].state_dict()
        assert all(torch.equal(value, player[name]) for name, value in torch.load(path, weights_only=True).items())
    assert teach(small(data, taught=str(tmp_path)), 3).seed == 3
    assert sorted(tmp_path.glob("*.pt")) == kept


def test_the_temperature_of_people_is_found(prepared_2020: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = KitchenPeople(str(prepared_2020), layouts=["cramped_room"])
    model = teach(small(data, tempered=True), 0)
    player = model.players["cramped_room"]
    assert isinstance(player, Agent)
    player.actor[-1].weight.data *= 2000  # as sure of itself as somebody who has practised for long
    steps, temperature = data.steps("train")["cramped_room"], 2.0
    probs = (model.as_it_plays(steps) / temperature).softmax(1)
    taken = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    played = {"train": {"cramped_room": steps._replace(actions=taken)}}
    monkeypatch.setattr(data, "steps", played.__getitem__)
    model.fit_temperature(data)
    assert float(model.temperature) == pytest.approx(temperature, rel=0.2)


def test_a_checkpoint_predicts_as_the_model_did(prepared_2020: Path, tmp_path: Path) -> None:
    data = KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"], batch_size=32)
    model = small(data, tempered=True)
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert [int(count) for count in model.practised.values()] == [2, 2]
    assert float(model.temperature) != 1.0
    steps = data.steps("test")["cramped_room"]
    read = SavedModel.read(tmp_path / "last.ckpt")
    assert isinstance(read, SelfPlay)
    assert torch.equal(read.action_log_probs(steps), model.eval().action_log_probs(steps))
    predictor = Predictor.from_checkpoint(tmp_path / "last.ckpt")
    found = predictor.predict("cramped_room", steps.states[:3], seats=0)  # type: ignore[attr-defined]
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(3))


def test_players_whose_practice_was_interrupted_are_not_kept_for_others(prepared_2020: Path, tmp_path: Path) -> None:
    data = KitchenPeople(str(prepared_2020), layouts=["cramped_room"], batch_size=32)
    quiet = {"logger": False, "enable_progress_bar": False, "num_sanity_val_steps": 0, "enable_checkpointing": False}
    first = lightning.Trainer(max_epochs=1, limit_train_batches=1, **quiet)  # type: ignore[arg-type]
    first.fit(small(data, taught=str(tmp_path / "taught")), datamodule=data)
    first.save_checkpoint(tmp_path / "last.ckpt")
    resumed = small(data, taught=str(tmp_path / "taught"))
    second = lightning.Trainer(max_epochs=5, **quiet)  # type: ignore[arg-type]
    second.fit(resumed, datamodule=data, ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert resumed.done("cramped_room")
    assert not list(tmp_path.glob("taught/*.pt"))
