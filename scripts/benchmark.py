"""Measure the project against named alternatives: `scripts/benchmark.py soft-bellman --json records.json`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from bsdr_torch.benchmarks import data, measure, overcooked, peers, prediction, soft_bellman, training
from bsdr_torch.errors import run_script

BENCHMARKS = ("soft-bellman", "overcooked", "data", "prediction", "training")


def main() -> None:
    """Parses the command line, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="soft-bellman")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the records: name, value, unit, against")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="soft-bellman: draw time against S, B and T")
    parser.add_argument("--peers", action="store_true", help="soft-bellman: measure imitation, in its own environment")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    arguments = parser.parse_args()
    if arguments.benchmark != "soft-bellman" and (arguments.figure is not None or arguments.peers):
        parser.error("--figure and --peers go with soft-bellman")
    for path in filter(None, (arguments.json, arguments.figure)):
        measure.check_writable(path)
    records: list[measure.Record] = []
    for found in measured(arguments):
        records += found
        if arguments.json is not None:  # after each, so that an interrupted run is not lost
            measure.write_json(records, arguments.json)
    print(measure.table(records))


def measured(arguments: argparse.Namespace) -> Iterator[list[measure.Record]]:
    """The records of each measurement when it is done, behind a progress bar."""
    quick = arguments.quick
    if arguments.benchmark != "soft-bellman":
        modules = {"overcooked": overcooked, "data": data, "prediction": prediction, "training": training}
        module = modules[arguments.benchmark]
        for record in tqdm(module.benchmark(quick), total=module.number_of_records(quick), desc="measuring"):
            yield [record]
        return
    jobs = soft_bellman.measurements(quick)
    if arguments.peers:
        jobs += peers.measurements(quick)
    if arguments.figure is not None:
        jobs.append(lambda: soft_bellman.scaling(quick, arguments.figure))
    for job in tqdm(jobs, desc="measuring"):
        yield job()


if __name__ == "__main__":
    run_script(main)
