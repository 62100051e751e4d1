"""Checks that profiling changes the reported iteration time by at most 1%.

    python tests/bench/profiling_overhead.py [--rounds 7] [--python PYTHON_WITH_TORCH]

For each demo project, alternates between the iteration time that `ridgeline profile` reports and
that of the bare script, measured only by an optimizer hook. Prints the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The iterations that the profiler times (after the warm-up), without any other instrumentation.
BARE = """
import os, runpy, statistics, sys, time
from torch.optim import optimizer
steps, warmup, timed = (int(a) for a in sys.argv[2:5])
ends = []
def stepped(*_):
    ends.append(time.perf_counter_ns())
    if len(ends) == steps * (warmup + timed) + 1:
        ends_of_iterations = ends[steps * warmup :: steps]
        pairs = zip(ends_of_iterations, ends_of_iterations[1:])
        print(statistics.median(b - a for a, b in pairs), file=sys.__stdout__, flush=True)
        os._exit(0)
optimizer.register_optimizer_step_post_hook(stepped)
sys.path.insert(0, os.path.dirname(sys.argv[1]))
sys.stdout = open(os.devnull, "w")
sys.argv = sys.argv[1:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    parser.add_argument("demos", nargs="*", default=["gpt", "seq2seq", "dcgan", "ncf", "bert"])
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        os.environ["RIDGELINE_CACHE_DIR"] = work + "/cache"
        for demo in args.demos:
            script = REPOSITORY / "demo-projects" / demo / "train.py"
            steps = {"dcgan": 2}.get(demo, 1)
            ratios = []
            for _ in range(args.rounds):
                out = Path(work) / "profile.json"
                subprocess.run(
                    [args.binary, "profile", script, "--python", args.python, "--json", out],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                reported = json.loads(out.read_text())["iteration"]["time_ms"]
                bare = subprocess.run(
                    [args.python, "-c", BARE, script, str(steps), "3", "10"],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                ratios.append(reported / (float(bare.stdout) / 1e6))
            print(
                f"{demo:8} reported / bare: median {statistics.median(ratios):.3f} "
                f"(of {args.rounds}: {min(ratios):.3f} to {max(ratios):.3f})"
            )


if __name__ == "__main__":
    main()
