from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bsdr_torch.baselines.frequencies import uniform
from bsdr_torch.contenders import Contender, contenders
from bsdr_torch.data.decisions import Decisions, RolloutKey
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import Results, evaluate, standard_error, tasks
from bsdr_torch.evaluation_report import ALL, figure, markdown, records, summary
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.metrics import SUMS
from bsdr_torch.rationality import MODELS

ROOT = Path(__file__).parent.parent
COUNTED = {name: contenders()[name] for name in ("uniform", "frequencies", "previous-action")}


def rollouts_of(pairs: int, layouts: int = 1) -> list[RolloutKey]:
    return [
        RolloutKey(f"kitchen {layout}", f"{layout}/{pair}", f"{pair}/{seat}", seat)
        for layout in range(layouts)
        for pair in range(pairs)
        for seat in (0, 1)
    ]


def per_pair(values: Tensor) -> Tensor:
    """Both players of a pair have its value."""
    return values.repeat_interleave(2)


def test_the_error_of_a_mean_is_that_of_as_many_pairs_however_often_they_play() -> None:
    values = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # Rubin's bootstrap of a mean of n values has this standard deviation.
    expected = math.sqrt(float(values.var(correction=0)) / 13)
    once = standard_error(per_pair(values), rollouts_of(12), draws=20_000)
    assert once == pytest.approx(expected, rel=0.03)
    # The same pairs in three kitchens are no more pairs than in one.
    thrice = standard_error(per_pair(values).repeat(3), rollouts_of(12, layouts=3), draws=20_000)
    assert thrice == pytest.approx(once)


def test_differences_are_paired() -> None:
    values = torch.randn(16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    better = values - 0.1
    assert standard_error(values, rollouts_of(8)) > 0.05
    assert standard_error(values - better, rollouts_of(8)) < 1e-9


def test_rollouts_that_do_not_test_do_not_count() -> None:
    values = torch.randn(16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rest = torch.cat([values[:8], torch.full((8,), torch.nan, dtype=torch.float64)])
    assert standard_error(rest, rollouts_of(8)) == pytest.approx(
        standard_error(values[:8], rollouts_of(4), draws=2000), rel=0.2
    )


class Recorder:
    """A contender that notes its fits and can be told to fail."""

    def __init__(self) -> None:
        self.fits: list[tuple[list[str], int]] = []
        self.fail_at: int | None = None

    def fit(self, data: KitchenPeople, seed: int) -> Predicts:
        if len(self.fits) == self.fail_at:
            raise KeyboardInterrupt
        self.fits.append((list(data.steps("test")), seed))
        return uniform(6)


def test_a_stopped_run_goes_on_where_it_stopped(prepared_2020: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    model = {"model": Contender(recorder.fit)}
    recorder.fail_at = 4
    with pytest.raises(KeyboardInterrupt):
        evaluate(model, ["layout"], range(2), prepared_2020, tmp_path)
    assert len(recorder.fits) == 4
    recorder.fail_at = None
    results = evaluate(model, ["layout"], range(2), prepared_2020, tmp_path)
    # Three kitchens, each the one that tests once, by two seeds.
    assert len(recorder.fits) == len({(*layouts, seed) for layouts, seed in recorder.fits}) == 6
    assert set(results.sums) == {("model", "layout", 0), ("model", "layout", 1)}
    # What cannot be read is made again, and only that.
    broken = sorted(tmp_path.iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:100])
    again = evaluate(model, ["layout"], range(2), prepared_2020, tmp_path)
    assert len(recorder.fits) == 7
    for key, sums in results.sums.items():
        assert torch.equal(sums, again.sums[key])


def test_what_is_not_kept_in_full_can_be_left_out(prepared_2020: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    model = {"model": Contender(recorder.fit)}
    evaluate(model, ["layout"], [0], prepared_2020, tmp_path)
    kept = sorted(tmp_path.iterdir())
    evaluate(model, ["layout"], [1], prepared_2020, tmp_path)
    next(path for path in tmp_path.iterdir() if path not in kept).unlink()
    recorder.fits.clear()
    found = evaluate(model, ["rollout", "layout"], [0, 1], prepared_2020, tmp_path, only_kept=True)
    assert list(found.sums) == [("model", "layout", 0)]
    assert not recorder.fits


def test_other_settings_data_or_kitchens_are_fitted_anew(prepared_2020: Path, tmp_path: Path) -> None:
    one = {"previous": contenders()["previous-action"]}
    evaluate(one, ["rollout"], [0], prepared_2020, tmp_path)
    evaluate({"previous": contenders()["frequencies"]}, ["rollout"], [0], prepared_2020, tmp_path)
    evaluate(one, ["rollout"], [0], prepared_2020, tmp_path, layouts=["cramped_room"])
    evaluate(one, ["rollout"], [1], prepared_2020, tmp_path)  # no chance is involved: the seed does not matter
    assert len(list(tmp_path.iterdir())) == 3


def test_settings_for_one_protocol_leave_the_fits_under_others_as_they_are(prepared_2020: Path, tmp_path: Path) -> None:
    fitted: list[str] = []

    def fit(data: KitchenPeople, seed: int, under: dict[str, int]) -> Predicts:
        fitted.append(data.protocol)
        return uniform(6)

    for epochs in (1, 2):
        model = {"model": Contender(fit, {"under": {"rollout": epochs, "human": 7}})}
        evaluate(model, ["rollout", "human"], [0], prepared_2020, tmp_path)
    assert fitted == ["rollout", "human", "rollout"]


def test_one_fit_serves_a_row_and_the_uses_of_its_model(prepared_2020: Path, tmp_path: Path) -> None:
    base, alone = Recorder(), Recorder()
    used: list[int] = []

    def use(model: Predicts, data: KitchenPeople, seed: int) -> Predicts:
        used.append(seed)
        return uniform(6)

    def anew(model: Predicts, data: KitchenPeople, seed: int) -> Predicts:
        return uniform(6)

    rows = {
        "base": Contender(base.fit, replan=anew),
        "use": Contender(alone.fit, replan=anew, made_of=("base", use)),
        "other use": Contender(alone.fit, made_of=("base", use)),
    }
    evaluate(rows, ["rollout", "human"], [0, 1], prepared_2020, tmp_path)
    # For each protocol and seed, the first use also of what is planned anew.
    assert (len(base.fits), len(alone.fits), len(used)) == (4, 0, 12)
    # Where the row is kept and its uses are not, its model is fitted again, once.
    for path in tmp_path.glob("*use-rollout-0-*"):
        path.unlink()
    evaluate(rows, ["rollout"], [0], prepared_2020, tmp_path)
    assert (len(base.fits), len(alone.fits), len(used)) == (5, 0, 15)
    evaluate({"use": rows["use"]}, ["rollout"], [2], prepared_2020, tmp_path)
    assert (len(base.fits), len(alone.fits)) == (5, 1)


def test_a_model_is_asked_once_of_what_its_row_and_the_uses_of_it_are_scored_on(
    prepared_2020: Path, tmp_path: Path
) -> None:
    class Counting:
        asked = 0

        def action_log_probs(self, batch: Decisions) -> Tensor:
            self.asked += len(batch.actions)
            return batch.times[:, None] * torch.ones(6).log_softmax(0)

    models: list[Counting] = []

    def fit(data: KitchenPeople, seed: int) -> Predicts:
        models.append(Counting())
        return models[-1]

    rows = {"base": Contender(fit), "use": Contender(fit, made_of=("base", lambda model, data, seed: model))}
    found = evaluate(rows, ["rollout"], [0], prepared_2020, tmp_path)
    base, use = (found.sums[name, "rollout", 0] for name in rows)
    assert torch.equal(base, use)
    assert float(base[:, SUMS.index("steps")].sum()) == models[0].asked > 0
    assert len(models) == 1


def test_those_who_learn_while_people_play_are_compared_with_one_another(prepared_2020: Path, tmp_path: Path) -> None:
    def fit(data: KitchenPeople, seed: int) -> Predicts:
        return uniform(6)

    plans = Contender(fit, replan=lambda model, data, seed: uniform(6))
    rows = {"cloning": Contender(fit), "cloning-weighed": Contender(fit), "plans": plans, "plans-weighed": plans}
    found = evaluate(rows, ["rollout"], [0], prepared_2020, tmp_path)
    rows_of_cells = [line.strip("| ").split(" | ") for line in markdown(found, rows, "plans", "").splitlines()]
    pairs = {tuple(cells[:2]) for cells in rows_of_cells}
    assert {("plans", "cloning"), ("plans, re-planned", "cloning")} <= pairs
    assert {("plans-weighed", "cloning-weighed"), ("plans-weighed, re-planned", "cloning-weighed")} <= pairs
    assert not {("plans-weighed", "cloning"), ("plans-weighed", "plans"), ("plans", "cloning-weighed")} & pairs


def test_every_model_is_tested_under_the_protocols_that_it_is_for() -> None:
    rows = {name: row for name, row in contenders().items() if row.kitchens(["a"])}
    everything = tasks(rows, PROTOCOLS, [0], ["a", "b"])
    for name, contender in rows.items():
        held_out = {task.protocol: task.held_out for task in everything if task.model == name}
        assert tuple(held_out) == contender.protocols
        assert ("layout" in held_out) == (held_out.get("layout") == "b")
    for planner in MODELS:
        assert contenders()[planner].protocols == PROTOCOLS
    with pytest.raises(InputError, match="'people' is not one of rollout, human, layout"):
        tasks(contenders(), ["people"], [0], ["a"])  # type: ignore[list-item]


def test_a_model_for_some_kitchens_is_tested_in_no_others(prepared_2020: Path, tmp_path: Path) -> None:
    assert not tasks({"bpd-sequence": contenders()["bpd-sequence"]}, PROTOCOLS, [0], ["a", "b"])

    def fit(data: KitchenPeople, seed: int, kitchens: list[str]) -> Predicts:
        return uniform(6)

    rows = {"all": Contender(fit, {"kitchens": ["cramped_room", "counter_circuit"]}), **COUNTED}
    rows["some"] = Contender(fit, {"kitchens": ["cramped_room"]})
    found = evaluate(rows, ["rollout", "layout"], [0], prepared_2020, tmp_path, ["cramped_room", "counter_circuit"])
    by_row = [(r["model"], r["layout"]) for r in records(found, rows) if r["protocol"] == "layout"]
    assert [layout for model, layout in by_row if model == "some"] == ["cramped_room", ALL]
    assert [layout for model, layout in by_row if model == "all"] == ["cramped_room", "counter_circuit", ALL]
    text = markdown(found, rows, "frequencies", "evaluate")
    some, every = (next(line for line in text.splitlines() if line.startswith(f"| {row} ")) for row in ("some", "all"))
    ce = {
        r["layout"]: r["ce"] for r in records(found, rows) if (r["model"], r["protocol"]) == ("frequencies", "rollout")
    }
    assert "\\* |" in some
    assert f"| {math.log(6) - ce['cramped_room']:+.3f} ±" in some
    assert "\\* |" not in every
    assert f"| {math.log(6) - ce[ALL]:+.3f} ±" in every
    labels = [label.get_text() for label in figure(found).axes[0].get_yticklabels()]
    assert {"some *", "all"} <= set(labels)


@pytest.fixture(scope="module")
def results(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return evaluate(COUNTED, ["rollout", "layout"], [0], prepared_2020, tmp_path_factory.mktemp("cache"))


def test_records_of_kitchens_average_to_that_of_all(results: Results) -> None:
    found = records(results, COUNTED)
    assert len(found) == 3 * 2 * (3 + 1)
    for model in COUNTED:
        rows = {r["layout"]: r for r in found if (r["model"], r["protocol"]) == (model, "layout")}
        kitchens = [row for layout, row in rows.items() if layout != ALL]
        for measure in ("ce", "ce_stay", "ce_moves", "accuracy"):
            assert rows[ALL][measure] == pytest.approx(sum(row[measure] for row in kitchens) / 3)
    assert [r["ce"] for r in found if r["model"] == "uniform"] == pytest.approx([math.log(6)] * 8)


def test_the_table_compares_with_the_chosen_row(results: Results) -> None:
    text = markdown(results, COUNTED, against="uniform", command="evaluate")
    ce = {r["model"]: r["ce"] for r in records(results, COUNTED) if (r["protocol"], r["layout"]) == ("rollout", ALL)}
    (row,) = (line for line in text.split("##")[1].splitlines() if line.startswith("| frequencies"))
    cells = row.split(" | ")
    assert cells[4].startswith(f"{ce['frequencies']:.3f} ±")
    assert cells[5].startswith(f"{ce['frequencies'] - math.log(6):+.3f} ±")


def test_the_figure_has_a_panel_for_each_protocol(results: Results) -> None:
    assert [axes.get_title() for axes in figure(results).axes] == ["protocol rollout", "protocol layout"]


def test_the_figure_of_many_models_has_the_rows_of_the_summary() -> None:
    many = by_hand({**{f"cloning-{width}": 0.9 for width in range(20)}, "habit": 1.0, "br": 0.8}, {"br": 0.9})
    few = by_hand({"cloning-64": 0.9, "habit": 1.0}, {})
    others = by_hand({f"cloning-{width}": 0.9 for width in range(20)}, {})
    labels = [[text.get_text() for text in figure(found).axes[0].get_yticklabels()] for found in (many, few, others)]
    assert labels == [["habit alone", "br"], ["cloning-64", "habit"], [f"cloning-{width}" for width in range(20)]]


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/evaluate.py"), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_the_script_writes_markdown_json_and_a_figure(prepared_2020: Path, tmp_path: Path) -> None:
    rows = ("uniform", "habit-id", "cloning-64-history")
    options = ("--models", *rows, "--protocols", "rollout", "--data", prepared_2020, "--seeds", 2, "--quick")
    done = run("--out", "report", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "UserWarning" not in done.stderr
    fields = "model, protocol, layout, seed, ce, ce_replanned, ce_stay, ce_moves, accuracy, se, history, identity"
    found = json.loads((tmp_path / "report/prediction.json").read_text())
    assert all(set(fields.split(", ")) <= set(record) for record in found)
    assert {record["model"] for record in found} == set(rows)
    assert "cloning-64-history" in (tmp_path / "report/prediction.md").read_text()
    assert (tmp_path / "report/prediction.png").stat().st_size > 10_000


def by_hand(losses: dict[str, float], replanned: dict[str, float]) -> Results:
    """Two kitchens with two pairs each; everybody makes 10 steps and loses as much at each."""
    rollouts = rollouts_of(2, layouts=2)
    sums, again = {}, {}
    for model, loss in losses.items():
        one = torch.tensor([10.0, 4.0, 10 * loss, 5.0, 5.0, 6.0], dtype=torch.float64)
        sums[model, "rollout", 0] = one.repeat(len(rollouts), 1)
        again[model, "rollout", 0] = torch.full((len(rollouts),), 10 * replanned.get(model, math.nan)).double()
    return Results(rollouts, sums, again)  # type: ignore[arg-type]


def test_planners_are_set_beside_the_best_cloning_row_and_one_another_by_kitchen() -> None:
    losses = {"cloning-64": 0.9, "cloning-256": 0.8, "br": 0.85, "bsdr": 0.7}
    results = by_hand(losses, {"br": 0.9, "bsdr": 0.75})
    results.sums["bsdr", "rollout", 0][:4, 2] -= 1  # 0.1 a step in the first kitchen
    rows = {name: contenders()[name] for name in losses}
    lines = markdown(results, rows, "cloning-64", "evaluate").splitlines()

    def differences(model: str, other: str) -> list[float]:
        (line,) = (line for line in lines if line.startswith(f"| {model} | {other} |"))
        return [float(cell.split(" ± ")[0]) for cell in line.strip("| ").split(" | ")[2:]]

    assert differences("bsdr", "cloning-256") == pytest.approx([-0.15, -0.2, -0.1])
    assert differences("bsdr, re-planned", "cloning-256") == pytest.approx([-0.05, -0.05, -0.05])
    assert differences("bsdr", "br") == pytest.approx([-0.2, -0.25, -0.15])
    assert differences("bsdr, re-planned", "br, re-planned") == pytest.approx([-0.15, -0.15, -0.15])
    assert not any(line.startswith("| bsdr | cloning-64 |") for line in lines)


def test_the_summary_takes_the_row_that_there_is() -> None:
    results = by_hand({"habit": 1.0, "br": 0.85}, {"br": 0.9})
    lines = summary(records(results, {name: contenders()[name] for name in ("habit", "br")})).splitlines()
    assert "| habit alone | 1.000 ± 0.000 | - | - |" in lines
    assert "| `br` | 0.850 ± 0.000, re-planned 0.900 | - | - |" in lines
    assert len(lines) == 4


def test_the_summary_says_of_which_rows_kitchens_are_missing() -> None:
    results = by_hand({"habit": 1.0, "bpd-inference-tempered": 1.5}, {})
    results.sums["bpd-inference-tempered", "rollout", 0][:4] = 0
    found = summary(records(results, {name: contenders()[name] for name in ("habit", "bpd-inference-tempered")}))
    assert "| BPD, with a temperature, watching | 1.500 ± 0.000 in 1 of 2 kitchens | - | - |" in found
    assert "| habit alone | 1.000 ± 0.000 | - | - |" in found
