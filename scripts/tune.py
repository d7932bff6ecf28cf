"""Try other settings of a model on data that never tests it: `scripts/tune.py bsdr --protocol human forget=0.5`."""

import argparse
from pathlib import Path

import torch
import yaml

from bsdr_torch.contenders import contenders
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.errors import InputError, run_script
from bsdr_torch.tuning import append, read, trials

DATA = Path("datasets/mturk_2019")


def main() -> None:
    """Parses the command line, fits, prints the scores and adds them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model", help="a row of scripts/evaluate.py")
    parser.add_argument("changes", nargs="*", metavar="NAME=VALUE", help="other settings, such as max_epochs=4")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="rollout", help="how training and test differ")
    parser.add_argument(
        "--without", nargs=2, default=[], metavar="KITCHEN", help="under layout: the kitchens that it is not trained in"
    )
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--out", type=Path, default=Path("docs/results/tuning.jsonl"), help="file to add the scores to")
    options = parser.parse_intermixed_args()  # settings may come after options
    rows = contenders()
    if options.model not in rows:
        raise InputError(f"{options.model!r} is not one of {', '.join(rows)}")
    wrong = [change for change in options.changes if "=" not in change]
    if wrong:
        raise InputError(f"{wrong[0]}: expected NAME=VALUE")
    changes = {name: _value(text) for name, text in (change.split("=", 1) for change in options.changes)}
    read(options.out)  # whether it can be added to: a fit takes minutes
    prepare(SOURCE_2019, DATA)
    torch.set_num_threads(1)  # the networks are small: more threads only wait for one another
    for row in trials(
        options.model, rows[options.model], options.protocol, changes, options.without, options.seed, DATA
    ):
        append(options.out, row)
        print(row, flush=True)


def _value(text: str) -> object:
    try:
        return float(text) if "e" in text.lower() else yaml.safe_load(text)  # YAML takes 4e-3 for a word
    except ValueError:
        return yaml.safe_load(text)


if __name__ == "__main__":
    run_script(main)
