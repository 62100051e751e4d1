"""Refits every shipped coefficient and writes the tables of docs/accuracy.md.

    python tests/bench/refit.py GROUND_TRUTH [--lists LISTS] [--python PYTHON] [--only NAME…]
    python tests/bench/refit.py GROUND_TRUTH --check

Each fitter of `ridgeline-evaluate` prints its errors on its training data and on held-out data.
This script runs the fitters one after the other and writes their output between the markers of
docs/accuracy.md:

    <!-- refit: data_parallel -->
    …
    <!-- refit end -->

together with the command, the date and a checksum of the measurements. Nothing between the markers
is written by hand. The coefficients that a fitter prints next to the shipped ones are copied into
the code by hand, because a fit that is better in one respect may be worse in another.

GROUND_TRUTH is the folder of measurements (docs/accuracy.md#the-folder). LISTS is the folder of
operator lists that `ridgeline evaluate GROUND_TRUTH` leaves in the cache (`evaluate-lists/`).
Without it, fitters that need lists are skipped. With `--python`, a Python with torch and timm, the
table of `ridgeline evaluate` (30 cases per question, seed 11) is written as well. `--check` runs
nothing, and fails if a marker has no table or its table was made from other measurements.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DOCUMENT = REPOSITORY / "docs" / "accuracy.md"
MARKER = re.compile(r"<!-- refit: (?P<name>\w+) -->\n(?P<body>.*?)<!-- refit end -->\n", re.DOTALL)
CHECKSUM = re.compile(r"measurements `(?P<sum>[0-9a-f]{12})`")


@dataclass(frozen=True)
class Fitter:
    """A program that fits coefficients, and what it needs."""

    arguments: tuple[str, ...]
    # The folders of GROUND_TRUTH that it reads.
    reads: tuple[str, ...]
    # What it requires: `lists`, `python`, or nothing.
    needs: str | None = "lists"


# By marker name. GROUND_TRUTH, LISTS, SCRATCH and PYTHON are placeholders for paths.
FITTERS = {
    "data_parallel": Fitter(("fit_data_parallel", "GROUND_TRUTH"), reads=("lambda",), needs=None),
    "step_scaling": Fitter(("fit_step_scaling", "GROUND_TRUTH", "LISTS"), reads=("timm",)),
    "op_costs": Fitter(
        ("fit_op_costs", "GROUND_TRUTH", "LISTS", "SCRATCH/coefficients.json"),
        reads=("timm", "neusight"),
    ),
    "compiled": Fitter(
        ("fit_what_ifs", "compiled", "GROUND_TRUTH", "LISTS", "SCRATCH/compiled.json"),
        reads=("timm",),
    ),
    "channels_last": Fitter(
        ("fit_what_ifs", "channels_last", "GROUND_TRUTH", "LISTS", "SCRATCH/channels_last.json"),
        reads=("timm",),
    ),
    "mixed_precision": Fitter(
        (
            "fit_what_ifs",
            "mixed_precision",
            "GROUND_TRUTH",
            "LISTS",
            "SCRATCH/mixed_precision.json",
        ),
        reads=("lambda",),
    ),
    "evaluate": Fitter(
        (
            "evaluate",
            "GROUND_TRUTH",
            "--sample",
            "30",
            "--seed",
            "11",
            "--python",
            "PYTHON",
        ),
        reads=("timm", "neusight", "lambda"),
        needs="python",
    ),
}


def checksum(folder: Path, reads: tuple[str, ...]) -> str:
    """Returns a checksum of the names and contents of all files that a fitter reads."""
    digest = hashlib.sha256()
    for part in reads:
        for file in sorted((folder / part).rglob("*")):
            if file.is_file():
                digest.update(str(file.relative_to(folder)).encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def run(fitter: Fitter, paths: dict[str, str], profile: str) -> str:
    """Runs a fitter. Returns its output."""
    program, *arguments = (
        paths.get(argument, argument.replace("SCRATCH", paths["SCRATCH"]))
        for argument in fitter.arguments
    )
    command = ["cargo", "run", "--profile", profile, "--quiet"]
    if program == "evaluate":
        command += ["-p", "ridgeline-server", "--features", "evaluate", "--", program]
    else:
        command += ["-p", "ridgeline-evaluate", "--bin", program, "--"]
    command += arguments
    result = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return result.stdout


def block(fitter: Fitter, output: str, measurements: str, day: datetime.date) -> str:
    """Formats the text between the markers: Markdown tables unchanged, other output as code."""
    command = shlex.join(fitter.arguments).replace("SCRATCH/", "")
    head = f"Printed by `{command}` on {day:%-d %B %Y} from measurements `{measurements}`.\n"
    output = output.strip("\n")
    if not output.startswith("|"):
        output = f"```text\n{output}\n```"
    return f"{head}\n{output}\n"


def with_replaced_table(document: str, name: str, text: str) -> str:
    """Returns the document with new text between the markers of that name."""
    found = [match for match in MARKER.finditer(document) if match["name"] == name]
    if len(found) != 1:
        sys.exit(f"{DOCUMENT} has {len(found)} markers <!-- refit: {name} -->; expected one.")
    start, end = found[0].span("body")
    return document[:start] + text + document[end:]


def check(folder: Path) -> int:
    """Checks that each table was made from the current measurements."""
    failures = 0
    markers = {match["name"]: match["body"] for match in MARKER.finditer(DOCUMENT.read_text())}
    for name, fitter in FITTERS.items():
        found = CHECKSUM.search(markers.get(name, ""))
        if name not in markers:
            error = "no marker in docs/accuracy.md"
        elif not found:
            error = "no table between its markers"
        elif found["sum"] != checksum(folder, fitter.reads):
            error = "its table was made from other measurements"
        else:
            continue
        failures += 1
        print(f"{name}: {error}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Refits the shipped coefficients.")
    parser.add_argument("ground_truth", type=Path)
    parser.add_argument("--lists", type=Path, help="folder of operator lists")
    parser.add_argument("--python", type=Path, help="a Python with torch and timm")
    parser.add_argument("--only", nargs="+", choices=sorted(FITTERS), metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument(
        "--scratch", type=Path, default=REPOSITORY / "target", help="folder for fitted files"
    )
    parser.add_argument(
        "--profile",
        default="release",
        help="cargo profile; `dev` builds faster and fits more slowly",
    )
    args = parser.parse_args()
    folder = args.ground_truth.resolve()
    if args.check:
        return check(folder)
    paths = {
        "GROUND_TRUTH": str(folder),
        "LISTS": str(args.lists and args.lists.resolve()),
        # Not resolved, because a virtual environment's Python must be called through its symlink.
        "PYTHON": str(args.python and args.python.absolute()),
        "SCRATCH": str(args.scratch.resolve()),
    }
    for name, fitter in FITTERS.items():
        if args.only and name not in args.only:
            continue
        if fitter.needs and getattr(args, fitter.needs) is None:
            print(f"{name}: skipped: requires --{fitter.needs}")
            continue
        output = run(fitter, paths, args.profile)
        print(f"{name}:\n{output}")
        today = datetime.datetime.now(tz=datetime.UTC).date()
        text = block(fitter, output, checksum(folder, fitter.reads), today)
        DOCUMENT.write_text(with_replaced_table(DOCUMENT.read_text(), name, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
