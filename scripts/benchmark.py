"""Measure the project against named alternatives: `scripts/benchmark.py overcooked --json records.json`."""

import argparse
from pathlib import Path

from tqdm import tqdm

from bsdr_torch.benchmarks import measure, overcooked, soft_bellman
from bsdr_torch.errors import run_script

BENCHMARKS = {"soft-bellman": soft_bellman, "overcooked": overcooked}


def main() -> None:
    """Parses the command line, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="?", choices=list(BENCHMARKS), default="soft-bellman")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the records: name, value, unit, against")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that it runs; the numbers mean nothing"
    )
    arguments = parser.parse_args()
    if arguments.json is not None:
        measure.check_writable(arguments.json)
    benchmark = BENCHMARKS[arguments.benchmark]
    total = benchmark.number_of_records(arguments.quick)
    records = list(tqdm(benchmark.benchmark(arguments.quick), total=total, desc="measuring", unit="record"))
    print(measure.table(records))
    if arguments.json is not None:
        measure.write_json(records, arguments.json)


if __name__ == "__main__":
    run_script(main)
