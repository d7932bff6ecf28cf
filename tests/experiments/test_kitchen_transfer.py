from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import PreparedSet, write_prepared
from bsdr_torch.experiments import kitchen_transfer, kitchen_transfer_report
from bsdr_torch.experiments.kitchen_transfer import (
    Case,
    Kitchen,
    boltzmann_rational,
    exact_case,
    kitchens,
    known_end_losses,
    network_losses,
)
from bsdr_torch.experiments.running import Run
from bsdr_torch.experiments.subgoal_people import SubgoalPeople, exchanged_people, ways
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.simulated_people import as_prepared
from bsdr_torch.rationality import POPULATION
from tests.experiments.played_games import random_games
from tests.experiments.test_kitchen_goals import PLANS, WANTED, walks


def test_nobody_is_exchanged_for_themselves() -> None:
    for people in (2, 3, 17):
        humans = 5 + torch.arange(people)
        found = exchanged_people(humans)
        assert bool((found != humans).all())
        assert torch.equal(found.sort().values, humans)


def simulated_kitchen(model: SubgoalPeople, people: int) -> Kitchen:
    """People who walk to subgoals as the model has it, each in a game of their own."""
    generator = torch.Generator().manual_seed(1)
    empty = torch.tensor([number for number, goal in enumerate(WANTED) if goal.hands == 0])
    goals = empty[torch.randint(len(empty), (800,), generator=generator)]
    humans = torch.randint(people, (800,), generator=generator)
    seen = walks(model, goals, humans, 2)._replace(game=humans)
    return Kitchen(PLANS, seen, goals, ways(PLANS, seen, goals), [str(human) for human in range(people)])


def test_people_are_predicted_best_with_what_is_their_own() -> None:
    model = SubgoalPeople("br_per_human", 4)
    with torch.no_grad():
        model.rationality.raw_theta_beta.copy_(torch.tensor([[1.0], [0.8], [-0.8], [-1.0]]))
    kitchen = simulated_kitchen(model, 4)
    loss = {whose: known_end_losses(kitchen, model, whose) for whose in ("own", "population", "another")}
    mean = {whose: sum(of.values()) / len(of) for whose, of in loss.items()}
    assert mean["own"] < mean["population"] - 0.005 < mean["another"] - 0.005
    with torch.no_grad():
        model.rationality.raw_theta_beta.fill_(0.3)
    assert known_end_losses(kitchen, model, "own") == pytest.approx(known_end_losses(kitchen, model, "another"))


def test_nothing_is_learned_in_the_new_kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["cramped_room", "coordination_ring"]
    games = [random_games(name, games=3, steps=200, seed=seed) for seed, name in enumerate(names)]
    games[1].players[2] = ("somebody", "else")  # who were never seen elsewhere
    one, other = (as_prepared(of) for of in games)
    both = PreparedSet(
        replace(one.provenance, layouts=names), one.kitchens | other.kitchens, one.replays | other.replays
    )
    write_prepared(tmp_path / "games", both)
    monkeypatch.setattr(kitchen_transfer, "FOLDER", tmp_path / "games")
    fitted = []

    def fit(
        kind: str, seen: dict[str, object], people: int, simpler: SubgoalPeople | None = None
    ) -> tuple[SubgoalPeople, bool]:
        assert (simpler is None) == (kind == "br")
        fitted.append(set(seen))
        return SubgoalPeople(kind, people), True

    monkeypatch.setattr(kitchen_transfer, "fit_people", fit)
    for remembered in (kitchens, boltzmann_rational):
        remembered.cache_clear()
    records = []
    for model in kitchen_transfer.EXACT:
        case = Case("exact", "coordination_ring", model, 0, True)
        records += [vars(case) | record for record in exact_case(case)]
    for remembered in (kitchens, boltzmann_rational):
        remembered.cache_clear()
    assert fitted == [{"cramped_room"}] * 4
    assert {record["pair"] for record in records} == {"0a and 0b", "1a and 1b"}
    whose = {model: {r["whose"] for r in records if r["model"] == model} for model in kitchen_transfer.EXACT}
    assert whose["bsdr"] == whose["br_per_human"] == {"own", "population", "another"}
    assert whose["bsdr_aggregate"] == whose["br"] == {"own"}


def test_a_person_made_of_parts_is_the_person_and_the_population(prepared_2020: Path) -> None:
    data = KitchenPeople(str(prepared_2020), ["cramped_room"], history=12)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = KitchenModel(data.specs, data.humans, data.named, hidden=[16], rank=3, history=12)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    model.eval()
    steps = data.steps("train")["cramped_room"]
    human = int(steps.humans[0])
    game = steps.some(steps.rollouts == steps.rollouts[0])
    other = next(number for number in range(len(data.humans)) if number != human)
    found = network_losses(model, game, human, other)
    with torch.no_grad():
        for whose, number in (("own", human), ("population", POPULATION), ("another", other)):
            said = model.action_log_probs(game._replace(humans=torch.full_like(game.humans, number)))
            expected = -float(said.gather(1, game.actions[:, None]).mean())
            assert found[whose] == pytest.approx(expected, abs=1e-4)
    assert len({round(loss, 6) for loss in found.values()}) == len(found)


def test_the_report_claims_no_more_than_its_intervals(tmp_path: Path) -> None:
    gains = {"own": -0.02, "own plans": 0.0, "own habits": -0.02, "another": 0.02, "another's plans": 0.0}
    records = []
    for engine, planner, models in (
        ("exact", "exact", kitchen_transfer.EXACT),
        ("network", "as trained", ("bsdr",)),
        ("network", "planned anew", ("bsdr",)),
    ):
        for model in models:
            for whose in ("own",) if model in ("br", "bsdr_aggregate") else ("population", *gains):
                records += [
                    {"engine": engine, "planner": planner, "model": model, "kitchen": kitchen, "seed": 0, "quick": True}
                    | {"whose": whose, "pair": pair, "converged": True}
                    | {
                        "cross_entropy": 1
                        + 0.1 * pair
                        + gains.get(whose, 0.0)
                        + 0.001 * (-1) ** pair * (len(whose) % 4)
                    }
                    for kitchen in ("cramped_room", "coordination_ring")
                    for pair in range(8)
                ]
    found = kitchen_transfer_report.write(Run(tmp_path, True, 2, 1), records)
    words = " ".join(finding.words for finding in found)
    assert "planned anew: the cross-entropy with the person's own is lower than that with all of" in words
    assert "no clear difference between the cross-entropy with own plans" in words
    assert "an effect that should not be there" not in words
    assert "nan" not in (tmp_path / "report.md").read_text()
