"""Measures the agent's estimates: how long they take, and the error of their peak memory.

    python tests/bench/estimates.py [--rounds 5] [--python PYTHON] [--binary BINARY]

For each demo: the median time from a request to the end of an estimate in a warm agent, and the
peak memory, estimated and as measured by `ridgeline profile` on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "gpu" / "agent" / "tests"))

from agent_driver import Agent  # noqa: E402

DEMOS = (
    "gpt/train.py",
    "resnet/train.py",
    "bert/train.py",
    "dcgan/train.py",
    "ncf/train.py",
    "seq2seq/train.py",
    "resnet/skyline_provider.py",
)


def main() -> None:
    """Prints one line per demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target" / "release" / "ridgeline"))
    arguments = parser.parse_args()
    with Agent(python=arguments.python) as agent, tempfile.TemporaryDirectory() as scratch:
        agent.wait_for("ready")
        for demo in DEMOS:
            path = REPOSITORY / "demo-projects" / demo
            kind = "provider" if "provider" in demo else "script"
            entry = {"kind": kind, "path": str(path)}
            agent.send({"op": "prepare", "root": str(path.parent), "entry": entry})
            agent.wait_for("ready")
            seconds = []
            for _ in range(arguments.rounds):
                start = time.perf_counter()
                identifier = agent.start_entry(
                    path.parent, entry, op="estimate", out=scratch, limits={"seconds": 60}
                )
                finished = agent.wait_for("finished", id=identifier)
                seconds.append(time.perf_counter() - start)
                assert finished["outcome"] == "complete", finished
            estimated = json.loads(Path(scratch, "ops.json").read_text())["memory"]["peak_bytes"]
            measured = measured_peak(arguments.binary, arguments.python, path, scratch)
            print(
                f"{demo:28} {1e3 * statistics.median(seconds):6.0f} ms   estimated {estimated:,}, "
                f"measured {measured:,}: {estimated / measured - 1:+.2%}",
                flush=True,
            )


def measured_peak(binary: str, python: str, path: Path, scratch: str) -> int:
    """Returns the peak memory of a profiled run."""
    result = os.path.join(scratch, "profile.json")
    states = {f"RIDGELINE_{name}_DIR": os.path.join(scratch, name) for name in ("CACHE", "STATE")}
    subprocess.run(
        [binary, "profile", str(path), "--python", python, "--device", "cpu", "--json", result],
        check=True,
        env={**os.environ, **states},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak: int = json.loads(Path(result).read_text())["memory"]["peak_bytes"]
    return peak


if __name__ == "__main__":
    main()
