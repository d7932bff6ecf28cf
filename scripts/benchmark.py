"""Measure the engine against named alternatives: `scripts/benchmark.py soft-bellman --json records.json`."""

import argparse
from pathlib import Path

from tqdm import tqdm

from bsdr_torch.benchmarks import measure, peers, soft_bellman
from bsdr_torch.errors import run_script


def main() -> None:
    """Parses the command line, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=["soft-bellman"], default="soft-bellman")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the records: name, value, unit, against")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw time against S, B and T")
    parser.add_argument("--peers", action="store_true", help="also measure imitation, in its own environment")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    arguments = parser.parse_args()
    for path in filter(None, (arguments.json, arguments.figure)):
        measure.check_writable(path)
    jobs = soft_bellman.measurements(arguments.quick)
    if arguments.peers:
        jobs += peers.measurements(arguments.quick)
    if arguments.figure is not None:
        jobs.append(lambda: soft_bellman.scaling(arguments.quick, arguments.figure))
    records: list[measure.Record] = []
    for job in tqdm(jobs, desc="measuring"):
        records += job()
        if arguments.json is not None:  # after each, so that an interrupted run is not lost
            measure.write_json(records, arguments.json)
    print(measure.table(records))


if __name__ == "__main__":
    run_script(main)
