"""The experiments by name, and all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from bsdr_torch.experiments import (
    action_prediction,
    goal_inference,
    kitchen_goals,
    kitchen_recovery,
    kitchen_rewards,
    kitchen_shared_goals,
    kitchen_transfer,
    online_adaptation,
    recovery,
    reward_generalization,
    shared_goals,
    suboptimality_transfer,
)
from bsdr_torch.experiments.reporting import Finding, bullets
from bsdr_torch.experiments.running import Run, write_text


class Experiment(NamedTuple):
    """What an experiment asks, and the function that runs it, writes its report and returns what it found."""

    question: str
    run: Callable[[Run], list[Finding]]


EXPERIMENTS = {
    "recovery": Experiment("Can the parameters of people be found from their rollouts?", recovery.run),
    "kitchen_recovery": Experiment(
        "Can the rationality of people in a kitchen be found, with learned features?", kitchen_recovery.run
    ),
    "shared_goals": Experiment("Do the rewards of people with the same task agree?", shared_goals.run),
    "reward_generalization": Experiment("Is the learned cost good to act by?", reward_generalization.run),
    "action_prediction": Experiment("Which model predicts what people do next?", action_prediction.run),
    "suboptimality_transfer": Experiment(
        "Does what a person is like in some worlds tell what the person does in another?", suboptimality_transfer.run
    ),
    "goal_inference": Experiment(
        "Does knowing where a person is unreliable tell sooner where the person is going?", goal_inference.run
    ),
    "kitchen_shared_goals": Experiment(
        "Do the rewards of recorded people agree, fitted to each of them alone?", kitchen_shared_goals.run
    ),
    "kitchen_rewards": Experiment(
        "Are the wishes that were learned of recorded people good to act by?", kitchen_rewards.run
    ),
    "kitchen_transfer": Experiment(
        "Does what a recorded person is like in some kitchens tell what the person does in another?",
        kitchen_transfer.run,
    ),
    "kitchen_goals": Experiment(
        "Can it be told what a recorded person will do next, and does it help to know the person?", kitchen_goals.run
    ),
    "online_adaptation": Experiment(
        "Is somebody new predicted better after some steps seen of them?", online_adaptation.run
    ),
}


def run_all(settings: Run) -> None:
    """Every experiment in a folder of its own, and README.md with what was found."""
    sections = []
    for name, experiment in EXPERIMENTS.items():
        found = experiment.run(replace(settings, out=settings.out / name))
        headlines = bullets(finding for finding in found if finding.headline)
        title = f"## {experiment.question}\n\n[{name}]({name}/report.md), `{settings.command(name)}`"
        sections.append(f"{title}\n\n{headlines}\n")
    text = f"""# What the experiments found

Made by `{settings.command("all")}`. Every sentence is made from the numbers in the report that is named with it: \
brackets are 95 % intervals over seeds, or over pairs of real people, and where the interval of a difference contains \
zero the sentence says so and claims nothing. A control is a comparison in which there is nothing to find.

The people of kitchen_shared_goals, kitchen_rewards, kitchen_transfer, kitchen_goals and online_adaptation are real. \
All others are simulated, by the rule of BSDR and with the features that the models are given; only in \
action_prediction some act by another rule, and in kitchen_recovery and a part of recovery the models have to find the \
features. What is found of them says what can be learned if people are like that, and how much there is to lose by \
ignoring it; it does not say that people are like that.

{chr(10).join(sections)}"""
    write_text(settings.out / "README.md", text)
