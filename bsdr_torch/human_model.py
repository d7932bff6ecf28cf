"""The model of people as a LightningModule: featurizers, rationality, log Z and the MAP objective."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from bsdr_torch import priors
from bsdr_torch.data.grid_people import Chunk, StepBatch, grid_problem
from bsdr_torch.errors import InputError
from bsdr_torch.features import FeatureKind, make_features
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.metrics import RolloutCrossEntropy
from bsdr_torch.objective import MapLoss, map_loss
from bsdr_torch.priors import PriorKind
from bsdr_torch.rationality import Gauge, LinkKind, Rationality, RationalityKind
from bsdr_torch.saved_models import SavedModel
from bsdr_torch.soft_bellman import Problem, action_log_probs, initial_values, soft_values
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.gridworld import GridWorld


class HumanModel(SavedModel):
    """What people want and how rational they are where, learned from their rollouts.

    Args:
        worlds: the GridWorlds as plain data (`GridWorld.spec`); the checkpoint carries them.
        humans: the ids of all people.
        rationality: br, br_per_human, irleed or bsdr; see `bsdr_torch.rationality`.
        features: fixed (given with the worlds), or learned by an mlp or cnn from a window around the person.
        share_features: use one featurizer for cost and rationality, as the paper does.
        width: number of learned features.
        hidden: hidden units or channels of a learned featurizer.
        view_radius: how far the window of a learned featurizer reaches.
        link: from theta_beta . phi_beta to beta: identity, softplus or exp.
        gauge: unit_norm or mean_one; by default unit_norm for fixed features and mean_one for learned ones.
        prior: of theta_beta: hierarchical over people, or gaussian; around beta = 1.
        prior_scale: the spread of theta_beta that is expected, or the gaussian's standard deviation.
        offset_scale: standard deviation of a person's offset of theta_R, for irleed.
        optimizer: adam, or lbfgs for small problems with all people in one chunk.
        learning_rate: of the optimiser; for lbfgs 1 is right.
        weight_decay: of learned featurizers.
    """

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        rationality: RationalityKind = "bsdr",
        features: FeatureKind = "fixed",
        share_features: bool = False,
        width: int = 8,
        hidden: int = 32,
        view_radius: int = 2,
        link: LinkKind = "exp",
        gauge: Gauge | None = None,
        prior: PriorKind = "hierarchical",
        prior_scale: float = 0.5,
        offset_scale: float = 0.3,
        optimizer: Literal["adam", "lbfgs"] = "adam",
        learning_rate: float = 0.05,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if any("map" not in spec for spec in worlds):
            raise InputError(
                "data: HumanModel learns from people in GridWorlds (SimulatedPeople, RecordedPeople); "
                "for people in kitchens choose KitchenModel or Cloning"
            )
        self.worlds = {world.name: world for world in map(GridWorld.from_spec, worlds)}
        self.humans = list(humans)
        self._mdps = {name: world.mdp for name, world in self.worlds.items()}
        self._warm_starts = {name: WarmStart() for name in self.worlds}  # of use where people plan without a horizon
        for i, (for_cost, for_beta) in enumerate(self._observations(features, share_features, view_radius)):
            self.register_buffer(f"cost_observation_{i}", for_cost, persistent=False)
            self.register_buffer(f"beta_observation_{i}", for_beta, persistent=False)
        self.phi_R = make_features(features, tuple(for_cost.shape[1:]), width, hidden)
        self.phi_beta = (
            self.phi_R if share_features else make_features(features, tuple(for_beta.shape[1:]), width, hidden)
        )
        self.rationality = Rationality(
            rationality,
            len(self.humans),
            self.phi_R.width,
            self.phi_beta.width,
            link,
            gauge or ("unit_norm" if features == "fixed" else "mean_one"),
        )
        self.validation_cross_entropy = RolloutCrossEntropy()
        self.test_cross_entropy = RolloutCrossEntropy()

    def cost(self, world: str) -> Tensor:
        """c(s), `[S]`."""
        return self.rationality.cost(self._features(world)[0])

    def beta(self, world: str, humans: Tensor) -> Tensor:
        """beta_i(s) of `humans [B]`, `[S, B]`."""
        return self.rationality.beta(self._features(world)[1], humans)

    def reward(self, world: str, humans: Tensor) -> Tensor:
        """r_i(s) of `humans [B]`, `[S, B]`."""
        return self.rationality.reward(*self._features(world), humans)

    def action_log_probs(self, batch: StepBatch) -> Tensor:
        """log P(action) at each decision, `[N, A]`."""
        people, column = torch.unique(batch.humans, return_inverse=True)
        mdp, problem = self._planning(batch.world)
        values = soft_values(mdp, self.reward(batch.world, people), **problem)
        return action_log_probs(mdp, values, batch.states, column, batch.steps, **problem)

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        model, options = self.rationality, self.hparams
        if model.gauge == "unit_norm":
            log_prior = priors.unit_sphere(model.theta_R)
        else:
            log_prior = priors.gaussian(model.theta_R, 1.0)
        # Around beta = 1 in a state with one active feature.
        center = float(model.link.inverse(torch.ones((), dtype=torch.float64)))
        if options["prior"] == "hierarchical":
            log_prior = log_prior + priors.hierarchical(model.theta_beta, options["prior_scale"], center)
        else:
            log_prior = log_prior + priors.gaussian(model.theta_beta - center, options["prior_scale"])
        if model.offset is not None:
            log_prior = log_prior + priors.gaussian(model.offset, options["offset_scale"])
        return log_prior

    def loss(self, chunk: Chunk) -> MapLoss:
        """The MAP loss of one chunk, and its parts."""
        mdp, problem = self._planning(chunk.world)
        reward = self.reward(chunk.world, chunk.humans)
        if chunk.evidence.needs_all_steps:
            values = soft_values(mdp, reward, **problem)
        else:
            values = initial_values(mdp, reward, **problem)[None]
        return map_loss(chunk.evidence, reward, values, self.log_prior(), chunk.num_chunks, chunk.total_actions)

    def training_step(self, chunk: Chunk, batch_idx: int) -> Tensor:
        """The MAP loss of one chunk, logged."""
        loss = self.loss(chunk)
        self.log_dict(
            {f"train/{name}": value.detach() for name, value in loss._asdict().items()},
            on_step=False,
            on_epoch=True,
            batch_size=1,
        )
        return loss.total

    def validation_step(self, chunk: Chunk, batch_idx: int) -> None:
        """Cross-entropy of the validation rollouts."""
        self._score(chunk, self.validation_cross_entropy)
        self.log("validation/cross_entropy", self.validation_cross_entropy, prog_bar=True, batch_size=1)

    def test_step(self, chunk: Chunk, batch_idx: int) -> None:
        """Cross-entropy of the test rollouts."""
        self._score(chunk, self.test_cross_entropy)
        self.log("test/cross_entropy", self.test_cross_entropy, batch_size=1)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the length of the gradient of each group of parameters."""
        groups = {"theta_R": self.rationality.raw_theta_R, "theta_beta": self.rationality.raw_theta_beta}
        norms = {f"gradient/{name}": _norm([parameter]) for name, parameter in groups.items()}
        norms["gradient/all"] = _norm(self.parameters())
        self.log_dict(norms, on_step=False, on_epoch=True, batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, or L-BFGS with a line search."""
        options = self.hparams
        if options["optimizer"] == "lbfgs":
            # The default tolerance_change gives up where a loss per action still has a gradient of 1e-5.
            return torch.optim.LBFGS(
                self.parameters(),
                lr=options["learning_rate"],
                max_iter=5,
                tolerance_change=1e-14,
                line_search_fn="strong_wolfe",
            )
        learned = [*self.phi_R.parameters(), *self.phi_beta.parameters()]
        return torch.optim.Adam(
            [
                {"params": list(self.rationality.parameters())},
                {"params": list(dict.fromkeys(learned)), "weight_decay": options["weight_decay"]},
            ],
            lr=options["learning_rate"],
        )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the checkpoint's precision, so that nothing is rounded on the way in."""
        self.to(checkpoint["state_dict"]["rationality.raw_theta_R"].dtype)

    def _planning(self, world: str) -> tuple[TabularMDP, Problem]:
        """The world's dynamics where the model is, and how people plan in it."""
        if world not in self.worlds:
            raise InputError(f"the model does not know the world {world!r}; it knows {', '.join(self.worlds)}")
        self._mdps[world] = self._mdps[world].to(self.device)
        mdp = self._mdps[world]
        problem = grid_problem(mdp, self.worlds[world].horizon, self.rationality.raw_theta_R.dtype)
        return mdp, problem | {"solver": Solver(warm_start=self._warm_starts[world])}

    def _features(self, world: str) -> tuple[Tensor, Tensor]:
        """phi_R and phi_beta of all states, `[S, F_R]` and `[S, F_beta]`."""
        number = list(self.worlds).index(world)
        phi_R: Tensor = self.phi_R(self.get_buffer(f"cost_observation_{number}"))
        if self.phi_beta is self.phi_R:
            return phi_R, phi_R
        return phi_R, self.phi_beta(self.get_buffer(f"beta_observation_{number}"))

    def _observations(
        self, features: FeatureKind, share_features: bool, view_radius: int
    ) -> list[tuple[Tensor, Tensor]]:
        """What phi_R and phi_beta see of each world."""
        if not self.worlds:
            raise InputError("worlds: a model needs at least one world")
        if features == "fixed":
            return [
                (world.reward_features, world.reward_features if share_features else world.rationality_features)
                for world in self.worlds.values()
            ]
        channels = list(dict.fromkeys(c for world in self.worlds.values() for c in world.channels))
        return [(view, view) for view in (world.view(view_radius, channels) for world in self.worlds.values())]

    def _score(self, chunk: Chunk, metric: RolloutCrossEntropy) -> None:
        batch, actions, rollout = chunk.decisions()
        metric.update(self.action_log_probs(batch), actions, rollout)


def _norm(parameters: Iterable[torch.nn.Parameter]) -> Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
