"""Run an experiment of the paper: `scripts/experiment.py recovery --out DIR`."""

import argparse
import os
from pathlib import Path

from bsdr_torch.errors import InputError, run_script
from bsdr_torch.experiments import recovery

EXPERIMENTS = {"recovery": recovery.run}


def main() -> None:
    """Parses the command line and runs the experiment."""
    parser = argparse.ArgumentParser(description="Run an experiment of the paper: figures, report.md and results.json.")
    parser.add_argument("experiment", choices=EXPERIMENTS, help="which experiment")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report; made if missing")
    parser.add_argument("--quick", action="store_true", help="a smaller version that takes under two minutes")
    parser.add_argument("--seeds", type=int, help="repetitions (default: 5, or 2 with --quick)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    options = parser.parse_args()
    seeds = options.seeds if options.seeds is not None else 2 if options.quick else 5
    if options.workers < 1 or seeds < 1:
        parser.error(f"--workers and --seeds must be 1 or more, got {options.workers} and {seeds}")
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"{options.out}: --out is a file; give a folder")
    EXPERIMENTS[options.experiment](options.out, options.quick, seeds, options.workers)
    print(f"Report: {options.out / 'report.md'}")


if __name__ == "__main__":
    run_script(main)
