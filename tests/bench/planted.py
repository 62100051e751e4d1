"""What findings of the planted projects say that a fault costs, and what the clean twin saves.

    python tests/bench/planted.py [--python PYTHON_WITH_TORCH] [--rounds 3] [RULE…]

Each pair of `demo-projects/planted` is profiled in turn, faulty and clean, several times: a machine
becomes slower and faster over minutes. It prints the median of what the finding tells and of what
the twin saves. What a fault costs besides the median iteration (workers that start with each epoch)
is taken from the whole run's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PLANTED = REPOSITORY / "demo-projects" / "planted"
# Their cost is no part of the median iteration: a whole run says it. The iterations of a run.
WHOLE_RUN = {"loader-workers-restarted": 96}
# Every third iteration is slow, which a median does not show.
MEAN = {"iteration-varies"}


def profile(binary: str, python: str, project: Path) -> dict[str, Any]:
    command = [
        binary,
        "profile",
        str(project / "train.py"),
        "--device",
        "cpu",
        "--json",
        "-",
        "--python",
        python,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def run_ms(python: str, project: Path) -> float:
    began = time.perf_counter()
    subprocess.run([python, "train.py"], cwd=project, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1e3


def saved_ms(
    rule: str, python: str, folder: Path, faulty: dict[str, Any], clean: dict[str, Any]
) -> float:
    if rule in WHOLE_RUN:
        return (run_ms(python, folder / "faulty") - run_ms(python, folder / "clean")) / WHOLE_RUN[
            rule
        ]
    if rule in MEAN:
        means = [statistics.mean(one["iteration"]["timed_ms"]) for one in (faulty, clean)]
        return float(means[0] - means[1])
    return float(faulty["iteration"]["time_ms"] - clean["iteration"]["time_ms"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target" / "release" / "ridgeline"))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    print("| rule | told | the clean twin saves | off by | other findings |\n|---|---|---|---|---|")
    for folder in sorted(PLANTED.iterdir()):
        rule = folder.name
        if not (folder / "faulty").is_dir() or (args.rules and rule not in args.rules):
            continue
        told: list[tuple[float, float]] = []
        saved: list[tuple[float, float]] = []
        others: set[str] = set()
        for _ in range(args.rounds):
            faulty = profile(args.binary, args.python, folder / "faulty")
            clean = profile(args.binary, args.python, folder / "clean")
            own = [one for one in faulty["findings"] if one["rule"] == rule]
            others |= {one["rule"] for one in faulty["findings"] if one["rule"] != rule}
            others |= {f"{one['rule']} (clean)" for one in clean["findings"]}
            told.append(
                (sum(one["time_ms"] or 0 for one in own), sum(one["bytes"] or 0 for one in own))
            )
            peaks = faulty["memory"]["peak_bytes"] - clean["memory"]["peak_bytes"]
            saved.append((saved_ms(rule, args.python, folder, faulty, clean), peaks))
        for at, unit in ((0, "ms"), (1, "bytes")):
            cost = statistics.median(one[at] for one in told)
            truth = statistics.median(one[at] for one in saved)
            if cost or (at == 0 and not any(one[1] for one in told)):
                off = f"{cost / truth - 1:+.0%}" if truth else "-"
                names = ", ".join(sorted(others))
                print(
                    f"| {rule} | {cost:,.2f} {unit} | {truth:,.2f} {unit} | {off} | {names} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
