"""Predict people's actions: `scripts/predict.py CHECKPOINT GAMES --out predictions.parquet`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from bsdr_torch.data.arrow_files import write_batches
from bsdr_torch.errors import run_script
from bsdr_torch.predictor import PredictedFile, Predictor


def main() -> None:
    """Parses the command line and writes the predictions."""
    parser = argparse.ArgumentParser(
        description="Action probabilities, beta, focus and more for every decision in a file of games."
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint that training wrote")
    parser.add_argument(
        "games",
        type=Path,
        metavar="GAMES",
        help="for a model of GridWorld, .parquet or .csv with columns world, human, rollout, step, state, action; for "
        "one of kitchens, a folder that scripts/prepare_data.py wrote, or a CSV or pickle in the 2020 schema",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("predictions.parquet"), help=".parquet or .csv (default: %(default)s)"
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="in kitchens: throw learned values away and plan again from what people want, about a minute or some for "
        "each kitchen, which may be one that the model was not trained in",
    )
    options = parser.parse_args()
    found = Predictor.from_checkpoint(options.checkpoint).predict_file(options.games, options.anew)
    rows = write_batches(options.out, behind_a_bar(found))
    print(f"{rows} decisions: {options.out}")


def behind_a_bar(found: PredictedFile) -> Iterator[pa.Table]:
    """The tables, and how far they are."""
    with tqdm(total=found.decisions, unit=" decisions", unit_scale=True, disable=None) as bar:
        for table in found.tables:
            yield table
            bar.update(table.num_rows)


if __name__ == "__main__":
    run_script(main)
