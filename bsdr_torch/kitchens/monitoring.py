"""Lightning callbacks that show in TensorBoard what a model of people in kitchens has learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from bsdr_torch.contenders import contenders
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import PARTS, Part
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import score
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import outlook, view
from bsdr_torch.kitchens.pictures import beta_figure, liveliest_stretch, replay_picture, reward_figure
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.metrics import KitchenScores, kitchen_measures
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, ego_first, step

# By what name TensorBoard knows each measure.
TAGS = {"ce": "cross_entropy", "ce_stay": "stay_or_not", "ce_moves": "which_move", "accuracy": "accuracy"}
_STEPS_BEYOND = 5  # random joint steps that lead from recorded states to states that nobody came to


class Baselines(lightning.Callback):
    """Fits simple models at the start, and draws what they reach as lines beside the model that is trained.

    A run that goes on from a checkpoint finds them there.

    Args:
        names: of `bsdr_torch.contenders`.
        max_epochs: of those that are trained; as many as in the table of all models by default.
        seed: of those that chance is involved in.

    Attributes:
        scores: by name and part, the `MEASURES` as means over kitchens.
    """

    def __init__(
        self,
        names: list[str] = ["uniform", "frequencies", "habit", "cloning-64-history"],  # noqa: B006  (never changed)
        max_epochs: int | None = None,
        seed: int = 0,
    ) -> None:
        unknown = sorted(set(names).difference(contenders()))
        if unknown:
            raise InputError(f"baselines: {unknown[0]!r} is not one of {', '.join(contenders())}")
        self.names, self.max_epochs, self.seed = list(names), max_epochs, seed
        self.scores: dict[str, dict[Part, dict[str, float]]] = {}
        self._writers: dict[str, SummaryWriter] = {}

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"scores": self.scores}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What the checkpoint kept."""
        self.scores = {name: found for name, found in state_dict["scores"].items() if name in self.names}

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Fits what is not there yet. Every process does so: their metrics wait for one another."""
        data = getattr(trainer, "datamodule", None)
        if not isinstance(data, KitchenPeople):
            return
        missing = [name for name in self.names if name not in self.scores]
        with _one_thread():
            for name in tqdm(missing, desc="Baselines", leave=False, disable=None if trainer.is_global_zero else True):
                model = self._fitted(name, data)
                self.scores[name] = {part: mean_scores(model, data, part) for part in PARTS}
        data.trainer = trainer  # fitting the baselines attached it to theirs
        if isinstance(trainer.logger, TensorBoardLogger) and trainer.is_global_zero:
            folder = Path(trainer.logger.log_dir) / "baselines"
            self._writers = {name: SummaryWriter(folder / name) for name in self.names}

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Draws the lines on, as far as the model's."""
        if not trainer.sanity_checking:
            self._draw(("train", "validation"), trainer.global_step)

    def on_fit_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Adds the scores on the test part."""
        self._draw(("test",), trainer.global_step)

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Closes the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _draw(self, parts: tuple[Part, ...], step: int) -> None:
        for name, writer in self._writers.items():
            for part in parts:
                for measure, value in self.scores[name][part].items():
                    writer.add_scalar(f"{part}/{TAGS[measure]}", value, step)

    def _fitted(self, name: str, data: KitchenPeople) -> Predicts:
        contender = contenders()[name]
        settings = dict(contender.settings)
        if self.max_epochs is not None and "under" in settings:
            limit = {"max_epochs": self.max_epochs}
            settings["under"] = {protocol: options | limit for protocol, options in settings["under"].items()}
        fitted: Predicts = contender.fit(data, self.seed, **settings)
        return fitted


class PlannerMonitor(lightning.Callback):
    """Logs what plans and rationality look like: log Z, Bellman residuals, gauge, priors, the spread of beta and focus.

    Args:
        decisions: at how many decisions of the validation part of each kitchen to look.
    """

    def __init__(self, decisions: int = 256) -> None:
        self.decisions = decisions

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Looks at the model after each validation."""
        data = getattr(trainer, "datamodule", None)
        if trainer.sanity_checking or not (isinstance(pl_module, KitchenModel) and isinstance(data, KitchenPeople)):
            return
        everybody = torch.arange(len(pl_module.humans), device=pl_module.device)
        beta, focus, missed, missed_beyond = [], [], [], []
        for name, steps in data.steps("validation").items():
            layout = pl_module.layout(name)
            some = _some(steps, self.decisions, pl_module.device)
            people, column = torch.unique(some.humans, return_inverse=True)
            beyond = some.states
            generator = torch.Generator().manual_seed(0)
            for _ in range(_STEPS_BEYOND):
                joint = torch.randint(NUM_ACTIONS, (len(beyond), 2), generator=generator).to(beyond.device)
                beyond = step(layout, beyond, joint)[0]
            missed.append(pl_module.residual(outlook(layout, some.states, some.seats), people, column))
            missed_beyond.append(pl_module.residual(outlook(layout, beyond, some.seats), people, column))
            features = view(layout, some.states, some.seats).features
            beta.append(pl_module.beta(features, everybody))
            focus.append(pl_module.rule.log_focus(features))
            games = data.kitchens[name]
            first = games.states[games.first].to(pl_module.device)
            begins = torch.cat([ego_first(first, seat) for seat in (0, 1)])
            log_z = pl_module.engine(layout, begins, view(layout, begins, 0).features, everybody)
            pl_module.log(f"log_z/{name}", log_z.mean(), batch_size=1)
        betas = torch.cat(beta)  # [N, people]
        logs = betas.log()
        theta = pl_module.rationality
        found = {
            "planner/residual_at_data": torch.cat(missed).square().mean().sqrt(),
            "planner/residual_at_unseen_states": torch.cat(missed_beyond).square().mean().sqrt(),
            "beta/spread_over_people": logs.std(1, correction=0).mean(),
            "beta/spread_over_states": logs.std(0, correction=0).mean(),
            "focus/spread_over_states": torch.cat(focus).std(correction=0),
            "gauge/largest_error_of_mean_beta": (betas.mean(1) - 1).abs().max(),
            "prior/log_prior": pl_module.log_prior(),
            "prior/theta_R_length": theta.theta_R.norm(),
            "prior/theta_beta_spread": theta.theta_beta.std(0, correction=0).mean(),
        }
        pl_module.log_dict(found, batch_size=1)
        if isinstance(trainer.logger, TensorBoardLogger) and trainer.is_global_zero:
            writer = trainer.logger.experiment
            writer.add_histogram("focus/states", torch.cat(focus).exp(), trainer.global_step)
            writer.add_histogram("beta/people_and_states", betas, trainer.global_step)
            writer.add_histogram("beta/people", logs.mean(0).exp(), trainer.global_step)
            writer.add_histogram("beta/spread_over_people_by_state", betas.std(1, correction=0), trainer.global_step)


class KitchenPictures(lightning.Callback):
    """Pictures of each kitchen: reward by what is held, beta of two people, and a replayed stretch.

    Args:
        every_n_epochs: how often; the trained model is always drawn.
        situations: over how many recorded situations maps are averaged.
    """

    def __init__(self, every_n_epochs: int = 5, situations: int = 24) -> None:
        self.every_n_epochs, self.situations = every_n_epochs, situations
        self._drawn = -1

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Draws when an epoch's turn has come."""
        if (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Draws the trained model."""
        self._draw(trainer, pl_module)

    @torch.no_grad()
    def _draw(self, trainer: lightning.Trainer, model: lightning.LightningModule) -> None:
        data = getattr(trainer, "datamodule", None)
        if not (isinstance(model, KitchenModel) and isinstance(data, KitchenPeople)):
            return
        if not isinstance(trainer.logger, TensorBoardLogger) or not trainer.is_global_zero:
            return
        if self._drawn == trainer.global_step:
            return
        self._drawn = trainer.global_step
        writer = trainer.logger.experiment
        with _evaluating(model):
            for name, steps in data.steps("validation").items():
                layout = model.layout(name)
                some = _some(steps, self.situations, model.device)
                situations = ego_first(some.states, some.seats)
                writer.add_figure(f"reward/{name}", reward_figure(model, layout, situations), self._drawn)
                players = {rollout.human for rollout in data.rollouts if rollout.layout == name}
                people = [place for place, human in enumerate(model.humans) if human in players]
                if len(people) > 1 and model.rationality.varies.by_state:
                    figure = beta_figure(model, layout, situations, torch.tensor(people, device=model.device))
                    writer.add_figure(f"beta/{name}", figure, self._drawn)
                stretch = liveliest_stretch(steps)
                if stretch is not None:
                    moved = stretch._replace(decisions=_some(stretch.decisions, None, model.device))
                    picture = replay_picture(model, moved)
                    writer.add_image(f"replay/{name}", picture, self._drawn, dataformats="HWC")


class PeopleProjector(lightning.Callback):
    """Shows people as points in TensorBoard's projector, with their ids and kitchens, when training has ended."""

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Writes theta_beta and how values differ by person."""
        data = getattr(trainer, "datamodule", None)
        if not (isinstance(pl_module, KitchenModel) and isinstance(data, KitchenPeople)):
            return
        if not isinstance(trainer.logger, TensorBoardLogger) or not trainer.is_global_zero:
            return
        kitchens: dict[str, list[str]] = {human: [] for human in pl_module.humans}
        for rollout in data.rollouts:
            kitchens.get(rollout.human, []).append(rollout.layout)  # nobody knows the AI players
        played = {human: sorted(set(names)) for human, names in kitchens.items()}
        people = [place for place, human in enumerate(pl_module.humans) if played[human]]
        metadata = [[pl_module.humans[i], " ".join(played[pl_module.humans[i]])] for i in people]
        tables = {"theta_beta": pl_module.rationality.theta_beta, "values": pl_module.values.people}
        for tag, table in tables.items():
            if len(table) == len(pl_module.humans) and table.shape[1] > 1:
                trainer.logger.experiment.add_embedding(
                    table.detach()[people].cpu(), metadata, tag=tag, metadata_header=["human", "kitchens"]
                )


@torch.no_grad()
def mean_scores(model: Predicts, data: KitchenPeople, part: Part) -> dict[str, float]:
    """The `MEASURES` of a part as means over kitchens; measured by this process alone."""
    layouts = [rollout.layout for rollout in data.rollouts]
    if part == "test":
        sums = score(model, data).sums
    else:
        scores = KitchenScores(layouts)
        for steps in data.steps(part).values():
            scores.update(model.action_log_probs(steps), steps.actions, steps.rollouts)
        sums = scores.sums
    found = kitchen_measures(sums, layouts)
    return {measure: float(found[measure]) for measure in TAGS}


def _some(steps: Decisions, many: int | None, device: torch.device) -> Decisions:
    """Decisions spread over all of them, `many` or all, on a device."""
    rows = torch.arange(len(steps.actions))
    if many is not None and many < len(rows):
        rows = torch.linspace(0, len(rows) - 1, many).long()
    return steps.some(rows).to(device)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The networks of baselines are small: more threads only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _evaluating(model: lightning.LightningModule) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
