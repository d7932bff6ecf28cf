"""Lightning callbacks that show in TensorBoard what a model of people has learned."""

from __future__ import annotations

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger

from bsdr_torch.data.grid_people import RolloutData
from bsdr_torch.human_model import HumanModel
from bsdr_torch.maps import map_figure
from bsdr_torch.recovery import recovery


class MapPictures(lightning.Callback):
    """Pictures of c(s) and of beta_i(s), for the people whose beta differs most from one another.

    Args:
        every_n_epochs: how often.
        people: how many.
    """

    def __init__(self, every_n_epochs: int = 50, people: int = 3) -> None:
        self.every_n_epochs, self.people = every_n_epochs, people

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Draws when an epoch's turn has come."""
        if (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Draws the final model."""
        self._draw(trainer, pl_module)

    @torch.no_grad()
    def _draw(self, trainer: lightning.Trainer, model: lightning.LightningModule) -> None:
        if not (isinstance(trainer.logger, TensorBoardLogger) and isinstance(model, HumanModel)):
            return
        for name, world in model.worlds.items():
            beta = model.beta(name, torch.arange(len(model.humans), device=model.device)).cpu()
            tilt = (beta.log() - beta.log().mean(1, keepdim=True)).norm(dim=0)  # beta may be zero or less: NaN is last
            chosen = tilt.nan_to_num(-1.0).topk(min(self.people, len(model.humans))).indices.tolist()
            figure = map_figure(world, model.cost(name).cpu(), {model.humans[i]: beta[:, i] for i in chosen})
            trainer.logger.experiment.add_figure(f"maps/{name}", figure, trainer.global_step)


class TruthMonitor(lightning.Callback):
    """Errors of the parameters against those of simulated people, where the DataModule knows them."""

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Logs cosine of theta_R, relative error of beta and regret for each world."""
        data = getattr(trainer, "datamodule", None)
        if trainer.sanity_checking or not (isinstance(data, RolloutData) and isinstance(pl_module, HumanModel)):
            return
        if data.truth is None or pl_module.hparams["features"] != "fixed":
            return
        everyone = torch.arange(len(data.humans), device=pl_module.device)
        for name, world in data.worlds.items():
            steps = data.parts[name].train.steps()
            # The regret needs gradients, which Lightning's inference mode does not allow.
            with torch.inference_mode(False), torch.no_grad():
                theta_R = pl_module.rationality.theta_R.cpu()
                beta = pl_module.beta(name, everyone.clone()).cpu()
                errors = recovery(world, data.truth, theta_R, beta, steps.state, steps.human)
            pl_module.log_dict({f"truth/{name}/{key}": value for key, value in errors._asdict().items()}, batch_size=1)
