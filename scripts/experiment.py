"""Run an experiment of the paper: `scripts/experiment.py goal_inference --out DIR`, or `all` of them."""

import argparse
import os
from pathlib import Path

from bsdr_torch.errors import InputError, run_script
from bsdr_torch.experiments.catalogue import EXPERIMENTS, run_all
from bsdr_torch.experiments.running import Run, default_seeds


def main() -> None:
    """Parses the command line and runs the experiment."""
    parser = argparse.ArgumentParser(
        description="Run an experiment of the paper: figures, report.md and results.json. What results.json in DIR "
        "already holds is not run again, so that an interrupted run goes on; for a fresh one give another folder."
    )
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"], help="which experiment")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report; made if missing")
    parser.add_argument("--quick", action="store_true", help="a smaller version that takes under a minute")
    parser.add_argument("--seeds", type=int, help="repetitions (default: 10, or 2 with --quick)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    options = parser.parse_args()
    seeds = options.seeds if options.seeds is not None else default_seeds(options.quick)
    if options.workers < 1 or seeds < 1:
        parser.error(f"--workers and --seeds must be 1 or more, got {options.workers} and {seeds}")
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"{options.out}: --out is a file; give a folder")
    settings = Run(options.out, options.quick, seeds, options.workers)
    if options.experiment == "all":
        run_all(settings)
        print(f"Summary: {options.out / 'README.md'}")
    else:
        EXPERIMENTS[options.experiment].run(settings)
        print(f"Report: {options.out / 'report.md'}")


if __name__ == "__main__":
    run_script(main)
