"""The DataModule of people recorded in kitchens.

People stand still a lot. Training batches of steps keep together what was decided in one situation, by anybody at any
time, so that a model that looks ahead from a situation looks once for all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bsdr_torch.data.batch_order import BatchOrder, ResumableLoader, Share
from bsdr_torch.data.decisions import Decisions, DecisionTable, KitchenRollouts, RolloutKey, windows
from bsdr_torch.data.prepared import layout_to_json, read_prepared
from bsdr_torch.data.splits import PARTS, Part, Protocol, split
from bsdr_torch.errors import InputError
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import unique_states

_LARGEST_SHARE_OF_DEVICE = 0.5


class KitchenPeople(lightning.LightningDataModule):
    """People recorded in Overcooked kitchens, from prepared files; each batch is of one kitchen.

    Args:
        folder: of the prepared files, which scripts/prepare_data.py writes.
        layouts: the kitchens to use; all of them by default.
        protocol: how training and test differ: `rollout`, `human` or `layout`; see `bsdr_torch.data.splits`.
        held_out: the kitchen to test on, under `layout`.
        validation: the share of the training part that validates.
        batches: `steps` (batches are `Decisions`) or `rollouts` (batches are `KitchenRollouts`).
        batch_size: how many steps or rollouts a process gets at a time.
        history: H, how many of a human's own last actions come with each step.
        window: the most steps of a rollout; whole games (of a part) by default.
        balanced: draw training batches so that everybody in a kitchen is equally likely, however much they played.
        seed: of the order, which depends on it and on the epoch alone.

    Attributes:
        protocol: as given.
        humans: the ids of all people of the set, whatever the kitchens used.
        kitchens: the games by kitchen.
        parts: which of `PARTS` each joint step is in, `[J]` by kitchen.
        rollouts: who played where, by the numbers in `Decisions.rollouts`.
    """

    def __init__(
        self,
        folder: str = "datasets/mturk_2019",
        layouts: list[str] | None = None,
        protocol: Protocol = "rollout",
        held_out: str | None = None,
        validation: float = 0.15,
        batches: Literal["steps", "rollouts"] = "steps",
        batch_size: int = 1024,
        history: int = 32,
        window: int | None = None,
        balanced: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("history", history, 0),
            ("window", window, 1),
            ("seed", seed, 0),
        ):
            if value is not None and value < least:
                raise InputError(f"{name} must be {least} or more, got {value}")
        prepared = read_prepared(Path(folder))
        used = prepared.provenance.layouts if layouts is None else layouts
        unknown = sorted(set(used).difference(prepared.kitchens))
        if unknown or not used:
            raise InputError(f"layouts: {unknown or 'none'} given, {folder} has {', '.join(prepared.kitchens)}")
        if held_out is not None and held_out not in used:
            raise InputError(f"held_out: {held_out!r} is not among the layouts used: {', '.join(used)}")
        # The split is that of the whole set, so that it does not depend on the kitchens used.
        parts = split(prepared.kitchens, protocol, held_out, validation)
        self.provenance, self.humans = prepared.provenance, prepared.humans
        self.kitchens = {name: prepared.kitchens[name] for name in used}
        self.parts = {name: parts[name] for name in used}
        self.rollouts: list[RolloutKey] = []
        self._tables: dict[str, DecisionTable] = {}
        numbers = {human: number for number, human in enumerate(self.humans)}
        for name, games in self.kitchens.items():
            self._tables[name] = DecisionTable.of(games, numbers, history, len(self.rollouts))
            self.rollouts += [
                RolloutKey(name, game, players[seat], seat)
                for game, players in zip(games.games, games.players, strict=True)
                for seat in (0, 1)
            ]
        self.protocol = protocol
        self._batches, self._batch_size, self._window = batches, batch_size, window
        self._balanced, self._seed = balanced, seed
        if not any(len(items) for items, _ in self._items("train").values()):
            raise InputError(
                f"{folder}: nothing is left to train on in {', '.join(used)} under the protocol {protocol}"
            )

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The kitchens as plain data, which a model's checkpoint carries; see `layout_from_json`."""
        return [layout_to_json(games.layout) for games in self.kitchens.values()]

    @property
    def named(self) -> list[str]:
        """The kitchens that a model may know by name: none if it is tested in one that is new to it."""
        trained = self.kitchens_of("train")
        return trained if len(trained) == len(self.kitchens) else []

    def kitchens_of(self, part: Part) -> list[str]:
        """The kitchens in which a part has decisions."""
        return [name for name in self.kitchens if len(self._decisions(name, part))]

    @property
    def trained_on(self) -> list[str]:
        """The people in the training part."""
        return [human for human, code in zip(self.humans, self._codes("train").tolist(), strict=False) if code >= 0]

    def steps(self, part: Part) -> dict[str, Decisions]:
        """All decisions of a part by kitchen, in the order of games and time."""
        codes, found = self._codes(part), {}
        for name, table in self._tables.items():
            index = self._decisions(name, part)
            if len(index):
                decisions = table.gather(index)
                found[name] = decisions._replace(humans=codes[decisions.humans])
        return found

    def train_dataloader(self) -> DataLoader[Any]:
        """The training part, in an order that depends on the seed and the epoch."""
        return self._loader("train")

    def val_dataloader(self) -> DataLoader[Any]:
        """The validation part, in order."""
        return self._loader("validation")

    def test_dataloader(self) -> DataLoader[Any]:
        """The test part, in order."""
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """The test part, in order."""
        return self._loader("test")

    def _loader(self, part: Part) -> DataLoader[Any]:
        trainer = self.trainer
        target = torch.device("cpu") if trainer is None else trainer.strategy.root_device
        device = target if _fits(self._tables, target) else torch.device("cpu")
        items = self._items(part)
        batches = _Batches(
            {name: table.to(device) for name, table in self._tables.items()},
            {name: length.to(device) for name, (_, length) in items.items()} if self._batches == "rollouts" else None,
            {name: first.to(device) for name, (first, _) in items.items()},
            self._codes(part).to(device),
        )
        weights = None
        if self._balanced and part == "train":
            weights = {name: _equal_people(self._tables[name].humans[first]) for name, (first, _) in items.items()}
        groups = None
        if self._batches == "steps":
            groups = {name: self._situations(name, first).to(device) for name, (first, _) in items.items()}
        order = BatchOrder(
            {name: torch.arange(len(first), device=device) for name, (first, _) in items.items()},
            self._batch_size,
            shuffle=part == "train",
            seed=self._seed,
            weights=weights,
            groups=groups,
            processes=1 if trainer is None else trainer.world_size,
            rank=0 if trainer is None else trainer.global_rank,
        )
        return ResumableLoader(batches, batch_size=None, sampler=order, pin_memory=device != target)

    def _items(self, part: Part) -> dict[str, tuple[Tensor, Tensor]]:
        """By kitchen, the first decision and the length of each rollout, or of each step (length 1)."""
        found = {}
        for name, games in self.kitchens.items():
            if self._batches == "rollouts":
                found[name] = windows(games, self.parts[name] == PARTS.index(part), self._window)
            else:
                index = self._decisions(name, part)
                found[name] = index, torch.ones_like(index)
        return found

    def _decisions(self, name: str, part: Part) -> Tensor:
        """The decisions of people in a part of a kitchen's games, by number."""
        chosen = (self.parts[name] == PARTS.index(part)).repeat_interleave(2) & (self._tables[name].humans >= 0)
        return chosen.nonzero()[:, 0]

    def _situations(self, name: str, decisions: Tensor) -> Tensor:
        """The number of the situation, which is a state and a seat, that each of the `decisions [M]` is made in."""
        states = self._tables[name].states[decisions >> 1]
        return unique_states(torch.cat([states, (decisions & 1)[:, None].to(states.dtype)], 1))[1]

    def _codes(self, part: Part) -> Tensor:
        """`[humans + 1]`: as whom the batches of a part present each person, `POPULATION` at the last place.

        Who is not in the training part is presented as `POPULATION`. So is everybody under `human`, which asks about
        unseen people, although the official split has some of them train in another kitchen.
        """
        codes = torch.full((len(self.humans) + 1,), POPULATION)
        if part == "train" or self.protocol != "human":
            for name, table in self._tables.items():
                known = table.humans[self._decisions(name, "train")]
                codes[known] = known
        return codes


class _Batches(Dataset[Decisions | KitchenRollouts]):
    """Gathers a batch at a time from tables that sit on a device, so that there is nothing to collate."""

    def __init__(
        self,
        tables: dict[str, DecisionTable],
        lengths: dict[str, Tensor] | None,
        first: dict[str, Tensor],
        codes: Tensor,
    ) -> None:
        self.tables, self.lengths, self.first, self.codes = tables, lengths, first, codes

    def __getitem__(self, share: Share) -> Decisions | KitchenRollouts:
        table, first = self.tables[share.layout], self.first[share.layout][share.items]
        if self.lengths is None:
            steps = table.gather(first)
            return steps._replace(humans=self.codes[steps.humans])
        rollouts = table.gather_windows(first, self.lengths[share.layout][share.items])
        return rollouts._replace(steps=rollouts.steps._replace(humans=self.codes[rollouts.steps.humans]))


def _equal_people(humans: Tensor) -> Tensor:
    """`[M]` weights of items of somebody each: those of each person sum to the same."""
    return 1 / torch.bincount(humans)[humans].float()


def _fits(tables: dict[str, DecisionTable], device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(table.num_bytes for table in tables.values()) < _LARGEST_SHARE_OF_DEVICE * free
