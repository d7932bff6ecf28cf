"""The experiments by name, and all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.experiments import (
    action_prediction,
    goal_inference,
    recovery,
    reward_generalization,
    shared_goals,
    suboptimality_transfer,
)
from bsdr_torch.experiments.reporting import bullets
from bsdr_torch.experiments.running import Run

EXPERIMENTS: dict[str, Callable[[Run], list[str]]] = {
    "recovery": recovery.run,
    "shared_goals": shared_goals.run,
    "reward_generalization": reward_generalization.run,
    "action_prediction": action_prediction.run,
    "suboptimality_transfer": suboptimality_transfer.run,
    "goal_inference": goal_inference.run,
}
"""Each runs, writes its report, and returns what it found, in sentences."""


def run_all(settings: Run) -> None:
    """Every experiment in a folder of its own, and README.md with what was found."""
    found = {name: run(replace(settings, out=settings.out / name)) for name, run in EXPERIMENTS.items()}
    sections = [
        f"## [{name}]({name}/report.md)\n\n`{settings.command(name)}`\n\n{bullets(sentences)}\n"
        for name, sentences in found.items()
    ]
    text = f"""# What the experiments found

Made by `{settings.command("all")}`. Every sentence is made from the numbers in the report that its heading leads to: \
brackets are 95 % intervals over seeds, and where an interval contains zero the sentence says that no difference was \
found. A control is a comparison in which there is nothing to find.

All people here are simulated, by the rule of BSDR and with the features that the models are given; only in \
action_prediction some act by another rule. What is found says what can be learned if people are like that, and how \
much there is to lose by ignoring it; it does not say that people are like that.

{chr(10).join(sections)}"""
    write_files({settings.out / "README.md": partial(_write_text, text=text)})


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)
