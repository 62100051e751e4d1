"""Measures the time from a save to refreshed hints on the GPT demo, compared with a new process
with torch.profiler.

    python tests/bench/save_to_hints.py [--rounds 5] [--python PYTHON_WITH_TORCH]

Both run the same number of iterations with the same thread settings, alternating. Prints the median
of each, their ratio, and what a save costs beyond the iterations themselves (their number times the
unprofiled median from the recording).
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
import time
from pathlib import Path

from lsp_client import Client

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# On a shared machine, spinning OpenMP threads measure other load, so both sides wait passively.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def is_refresh(message: dict) -> bool:
    return message["method"] == "workspace/inlayHint/refresh"


def is_state(message: dict, state: str) -> bool:
    return message["method"] == "ridgeline/status" and message["params"]["state"] == state


def newest_manifest(cache: Path) -> dict:
    newest = max(cache.rglob("manifest.json"), key=lambda path: path.stat().st_mtime_ns)
    return json.loads(newest.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    args = parser.parse_args()

    work = Path(tempfile.mkdtemp(prefix="ridgeline-bench-"))
    try:
        project = work / "gpt"
        shutil.copytree(REPOSITORY / "demo-projects/gpt", project)
        os.environ["RIDGELINE_CACHE_DIR"] = str(work / "cache")
        os.environ["RIDGELINE_STATE_DIR"] = str(work / "state")
        client = Client([args.binary, "lsp"], project, {"interpreter": args.python})
        model = project / "model.py"
        uri = model.as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": model.read_text()}
        client.notify("textDocument/didOpen", {"textDocument": document})

        def save_until_hints() -> float:
            start = time.monotonic()
            client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
            client.wait("the start of a run", lambda m: is_state(m, "running"))
            client.wait("refreshed hints", is_refresh)
            whole = {"start": {"line": 0, "character": 0}, "end": {"line": 10_000, "character": 0}}
            hints = client.request(
                "textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": whole}
            )
            assert hints, "a profiled model must have hints"
            return time.monotonic() - start

        save_until_hints()  # starts the zygote
        save_times, cold_times, extra = [], [], []
        for _ in range(args.rounds):
            save_seconds = save_until_hints()
            iterations = newest_manifest(work / "cache")["iterations"]
            count = iterations["warmup"] + len(iterations["timed_ns"]) + len(iterations["profiled"])
            iteration_seconds = count * statistics.median(iterations["timed_ns"]) / 1e9
            start = time.monotonic()
            subprocess.run(
                [args.python, HERE / "cold_profiler.py", project, str(count)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            cold_seconds = time.monotonic() - start
            save_times.append(save_seconds)
            cold_times.append(cold_seconds)
            extra.append(save_seconds - iteration_seconds)
            print(
                f"save to hints {save_seconds * 1e3:6.0f} ms ({count} iterations: "
                f"{iteration_seconds * 1e3:.0f} ms), new process with torch.profiler "
                f"{cold_seconds * 1e3:6.0f} ms"
            )
        client.close()
        ratio = statistics.median(t / o for o, t in zip(save_times, cold_times))
        print(f"beyond the iterations: median {statistics.median(extra) * 1e3:.0f} ms (bound: 300)")
        print(f"ratio to a new process: median {ratio:.1f} (bound: 6)")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
