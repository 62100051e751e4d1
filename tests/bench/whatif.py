"""Compares predicted and measured speedups of optimizations on this machine's CPU, for the demos.

    python tests/bench/whatif.py [--python PYTHON_WITH_TORCH] [--only NAME] [--rounds 12] [DEMO…]

For each demo, `ridgeline whatif --json` predicts from a recording of the unmodified code. Then the
demo is edited by hand (tests/bench/whatif_edits.py) and runs side by side with the unedited one,
alternating every few iterations (tests/bench/take_turns.py). Activation recomputation is edited and
measured by Ridgeline itself, because the prediction chooses the lines. Prints the predicted and
measured speedup, the error, and for recomputation the error of the peak memory. Targets: a mean
error of 10%, no error above 20%, and 5% for the memory of recomputation.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from take_turns import MORE_SECONDS, speedup
from whatif_edits import LONG, STEPS, Case, apply_edit, cases

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MEAN_TARGET, LARGEST_TARGET, MEMORY_TARGET = 0.10, 0.20, 0.05
# On a shared machine, spinning OpenMP threads would make the result depend on other load.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


class Bench:
    """The folder with copies of the demos, and cached predictions."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.args = args
        self.work = work
        self.predictions: dict[str, dict[str, Any]] = {}

    def copy(self, case: Case, name: str, *, after: bool) -> Path:
        """Copies the demo of a case, before or after the edit."""
        project = self.work / name
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(REPOSITORY / "demo-projects" / case.demo, project)
        apply_edit(project, case.variant)
        if after:
            apply_edit(project, case.edit)
        return project

    def ridgeline(self, *command: Any) -> None:
        """Runs Ridgeline. Shows its output if it fails."""
        home = str(self.work / "home")
        environment = {**os.environ, "RIDGELINE_CACHE_DIR": home, "RIDGELINE_STATE_DIR": home}
        line = [self.args.binary, *map(str, command)]
        result = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=900)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(line)}: {result.stderr[-2000:]}")

    def predicted(self, case: Case, arguments: list[str]) -> dict[str, Any] | None:
        """Returns the prediction for a case, or None if it is refused."""
        key = f"{case.demo} {case.variant_name}"
        if key not in self.predictions:
            project = self.copy(case, f"{case.demo}-predicted", after=False)
            out = self.work / "whatif.json"
            python = ["--python", self.args.python]
            self.ridgeline("whatif", project / "train.py", *python, "--json", out, "--", *arguments)
            self.predictions[key] = json.loads(out.read_text())
        study = self.predictions[key]
        for entry in study["predictions"]:
            if entry["names"] == [case.name]:
                return entry
        reasons = [entry["why"] for entry in study["refusals"] if entry["name"] == case.name]
        print(f"{case.title:45} refused: {'; '.join(reasons) or 'no prediction'}")
        return None

    def measured_by_ridgeline(self, case: Case, arguments: list[str]) -> list[dict[str, Any]]:
        """Returns pairs of predictions and measurements from Ridgeline, which makes the edit and
        runs the unedited code before and after the edited one.
        """
        project = self.copy(case, f"{case.demo}-measured", after=False)
        out = self.work / "measured.json"
        selection = ["--only", case.name, "--measure", case.name]
        command = ["whatif", project / "train.py", "--python", self.args.python, *selection]
        pairs = []
        for _ in range(max(1, self.args.rounds // 4)):
            self.ridgeline(*command, "--json", out, "--", *arguments)
            found = json.loads(out.read_text())["measured"]
            if not found:
                raise RuntimeError("Ridgeline could not make the edit or run it")
            pairs += found
        return pairs

    def compare(self, case: Case, more: list[str]) -> dict[str, Any] | None:
        """Returns one row, or None without a prediction."""
        prediction = self.predicted(case, more)
        if prediction is None:
            return None
        memory_error = None
        if case.edit:
            measured = self.side_by_side(case, more)
        else:
            pairs = self.measured_by_ridgeline(case, more)
            measured = median_speedup(pairs)
            memory_error = peak_error(pairs)
        row = {
            "case": case.title,
            "predicted": prediction["speedup"],
            "measured": measured,
            "error": prediction["speedup"]["value"] / measured["speedup"] - 1,
            "memory_error": memory_error,
        }
        print(
            f"{case.title:45} predicted {row['predicted']['value']:5.2f} "
            f"({row['predicted']['low']:.2f} to {row['predicted']['high']:.2f}), "
            f"measured {measured['speedup']:5.2f} "
            f"({measured['quarter']:.2f} to {measured['three_quarters']:.2f}): {row['error']:+.1%}"
            + ("" if memory_error is None else f"; peak {memory_error:+.1%}"),
            flush=True,
        )
        return row

    def side_by_side(self, case: Case, more: list[str]) -> dict[str, Any]:
        """Measures the speedup of the manual edit."""
        before = self.copy(case, f"{case.demo}-before", after=False)
        after = self.copy(case, f"{case.demo}-after", after=True)
        turns: dict[str, int] = {"rounds": self.args.rounds, **case.turns}
        measured = speedup(
            self.args.python,
            before / "train.py",
            after / "train.py",
            steps=STEPS.get(case.demo, 1),
            arguments=[*LONG[case.demo], *more],
            more_seconds=MORE_SECONDS,
            **turns,
        )
        for key in ("speedup", "quarter", "three_quarters"):
            measured[key] *= case.samples
        return measured


def median_speedup(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the speedup that Ridgeline measured."""
    ratios = [entry["measured"]["before_ns"] / entry["measured"]["after_ns"] for entry in pairs]
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "speedup": statistics.median(ratios),
        "quarter": quarters[0],
        "three_quarters": quarters[2],
    }


def peak_error(pairs: list[dict[str, Any]]) -> float | None:
    """Returns the error of the predicted change of the peak memory, if both are known. It is
    relative to the unedited code's peak of the same pair, because that peak varies with the
    batches.
    """
    sides = [(share(entry["predicted"]), share(entry["measured"])) for entry in pairs]
    errors = [
        predicted_share / measured_share - 1
        for predicted_share, measured_share in sides
        if predicted_share and measured_share
    ]
    return statistics.median(errors) if errors else None


def share(sides: dict[str, Any]) -> float | None:
    """Returns the ratio of the peaks after and before the edit."""
    before, after = sides["before_peak_bytes"], sides["after_peak_bytes"]
    return after / before if before and after else None


def report(rows: list[dict[str, Any]]) -> bool:
    """Prints the summary of all rows. Returns whether the accuracy targets are met."""
    if not rows:
        return False
    errors = [abs(row["error"]) for row in rows]
    mean, largest = statistics.mean(errors), max(errors)
    memory = [abs(row["memory_error"]) for row in rows if row["memory_error"] is not None]
    print(
        f"{len(rows)} compared: mean error {mean:.1%} (target: {MEAN_TARGET:.0%}), "
        f"largest {largest:.1%} (target: {LARGEST_TARGET:.0%})"
    )
    if memory:
        print(f"recomputation: memory error {max(memory):.1%} (target: {MEMORY_TARGET:.0%})")
    accurate = mean <= MEAN_TARGET and largest <= LARGEST_TARGET
    return accurate and all(error <= MEMORY_TARGET for error in memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", action="append", default=[], help="name of an optimization")
    parser.add_argument("--out", type=Path, help="write all rows into this file, as JSON")
    parser.add_argument("demos", nargs="*", default=list(LONG))
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ridgeline-bench-"))
    rows = []
    try:
        bench = Bench(args, work)
        for case in cases():
            if case.demo in args.demos and (not args.only or case.name in args.only):
                try:
                    row = bench.compare(case, [])
                except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
                    print(f"{case.title:45} FAILED: {error}")
                    continue
                rows += [row] if row else []
        if args.out:
            args.out.write_text(json.dumps(rows, indent=1))
        sys.exit(0 if report(rows) else 1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
