"""Prepare recorded games for training: read, replay through the simulator, write Parquet and figures."""

import argparse
from pathlib import Path

from tqdm import tqdm

from bsdr_torch.data.data_card import draw_figures, figure_paths, summary_table
from bsdr_torch.data.prepare import prepare, read_and_verify
from bsdr_torch.errors import run_script


def main() -> None:
    """Reads the command line, prepares, and prints what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--source",
        default="mturk_2019",
        help="mturk_2019 (inside the installed overcooked-ai), or a file in the 2020 schema: CSV or pickle",
    )
    parser.add_argument("--out", type=Path, default=Path("datasets"), help="folder of data sets")
    parser.add_argument(
        "--name", default=argparse.SUPPRESS, help="of the set in it (default: mturk_2019, or mturk_2020 for a file)"
    )
    parser.add_argument("--rules", type=int, choices=[2019, 2020], default=2020, help="that the games of a file obey")
    parser.add_argument(
        "--on-break",
        choices=["keep", "cut", "drop"],
        default="keep",
        help="a game that the simulator does not follow is kept as recorded, cut at the break, or dropped",
    )
    parser.add_argument("--check-only", action="store_true", help="read and replay, but write nothing")
    arguments = parser.parse_args()

    usual_name = "mturk_2019" if arguments.source == "mturk_2019" else "mturk_2020"
    folder = arguments.out / getattr(arguments, "name", usual_name)
    with tqdm(bar_format="{desc:<36} {bar:20} {elapsed}", leave=False, disable=None) as bar:

        def progress(stage: str, done: int, total: int | None) -> None:
            bar.n, bar.total = done, total
            bar.set_description_str(stage)

        if arguments.check_only:
            prepared = read_and_verify(arguments.source, arguments.rules, arguments.on_break, progress)
        else:
            prepared, made = prepare(arguments.source, folder, arguments.rules, arguments.on_break, progress)
            if made or not all(path.exists() for path in figure_paths(folder)):
                progress("drawing", 9, 10)
                draw_figures(folder, prepared)
    print(summary_table(prepared))
    for layout, replay in prepared.replays.items():
        print(f"{layout}: {replay}")
    if arguments.check_only:
        print("Checked; nothing was written.")
    else:
        print(f"{'Prepared' if made else 'Already prepared'}: {folder}")


if __name__ == "__main__":
    run_script(main)
