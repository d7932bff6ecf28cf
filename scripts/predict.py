"""Predict people's actions: `scripts/predict.py CHECKPOINT ROLLOUTS --out predictions.parquet`."""

import argparse
from pathlib import Path

from bsdr_torch.data.rollouts import read_rollouts, write_table
from bsdr_torch.errors import run_script
from bsdr_torch.predictor import Predictor


def main() -> None:
    """Parses the command line and writes the predictions."""
    parser = argparse.ArgumentParser(
        description="Action probabilities, beta and cost for every decision in a file of rollouts."
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint that training wrote")
    parser.add_argument(
        "rollouts",
        type=Path,
        metavar="ROLLOUTS",
        help=".parquet or .csv with columns world, human, rollout, step, state, action",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("predictions.parquet"), help=".parquet or .csv (default: %(default)s)"
    )
    options = parser.parse_args()
    predictor = Predictor.from_checkpoint(options.checkpoint)
    rollouts, humans = read_rollouts(options.rollouts)
    table = predictor.table(rollouts, humans, str(options.rollouts))
    write_table(table, options.out)
    print(f"{table.num_rows} decisions: {options.out}")


if __name__ == "__main__":
    run_script(main)
