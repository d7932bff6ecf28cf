"""Compare models that predict people in kitchens: `scripts/evaluate.py --out DIR` writes prediction.md, .json, .png."""

import argparse
import shlex
import sys
from pathlib import Path

import torch

from bsdr_torch.contenders import contenders
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.prepared import read_provenance
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.errors import InputError, run_script
from bsdr_torch.evaluation import evaluate
from bsdr_torch.evaluation_report import check_against, write_report

DATA = Path("datasets/mturk_2019")
AGAINST = "cloning-64-history"


def main() -> None:
    """Parses the command line, measures what is not measured yet, writes and prints the table."""
    names = list(contenders())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the report; made if missing")
    parser.add_argument("--models", nargs="+", default=names, metavar="NAME", help="rows of the table")
    parser.add_argument(
        "--protocols", nargs="+", default=PROTOCOLS, choices=PROTOCOLS, help="how training and test differ"
    )
    parser.add_argument("--seeds", type=int, default=3, help="fits of each model that chance is involved in")
    parser.add_argument(
        "--against",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help=f"row to show differences from (default: {AGAINST}, or the last)",
    )
    parser.add_argument("--data", type=Path, default=DATA, help="prepared games; the default is prepared if missing")
    parser.add_argument("--cache", type=Path, default=Path("lightning_logs/evaluation"), help="folder of finished fits")
    parser.add_argument("--kept", action="store_true", help="fit nothing: a table of what the cache has")
    parser.add_argument("--quick", action="store_true", help="two kitchens, one epoch: to see that it runs")
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in names]
    if unknown:
        raise InputError(f"--models: {unknown[0]!r} is not one of {', '.join(names)}")
    if options.seeds < 1:
        raise InputError(f"--seeds must be 1 or more, got {options.seeds}")
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"{options.out}: --out is a file; give a folder")
    usual = AGAINST if AGAINST in options.models else options.models[-1]
    against = getattr(options, "against", usual)
    check_against(against, options.models)
    if options.data == DATA:
        prepare(SOURCE_2019, DATA)
    layouts = read_provenance(options.data).layouts
    torch.set_num_threads(1)  # the networks are small: more threads only wait for one another
    rows = {name: row for name, row in contenders(options.quick).items() if name in options.models}
    results = evaluate(
        rows,
        options.protocols,
        range(options.seeds),
        options.data,
        options.cache,
        layouts[:2] if options.quick else layouts,
        options.kept,
    )
    if not results.sums:
        raise InputError(f"{options.cache}: --kept: there is nothing of these models; leave the option out to fit them")
    paths = write_report(options.out, results, rows, against, shlex.join(["scripts/evaluate.py", *sys.argv[1:]]))
    print(paths[0].read_text())
    print("Written:", *paths)


if __name__ == "__main__":
    run_script(main)
