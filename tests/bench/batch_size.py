"""Compares predicted and measured time, memory and largest batch size, for all demos.

    python tests/bench/batch_size.py [--python PYTHON_WITH_TORCH] [--rounds 6] [--far] [DEMO…]

For each demo project, a language server profiles it and sweeps its batch size, as it does in an
editor. The panel then shows predictions at half and double the batch size, which are part of the
sweep. The benchmark runs those batch sizes side by side with the current one, alternating every few
iterations, in several processes one after another (their extremes are in parentheses). It prints
the errors, and whether the predicted largest batch size under an imposed memory limit is the
largest one whose measured peak fits. With `--far` it also compares a quarter of and three times the
batch size, which the server never ran. On two shared cores, OMP_NUM_THREADS=1 makes measurements
more reproducible.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from lsp_client import Client
from take_turns import keep_pages, speedup
from whatif_edits import LONG, STEPS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DEMOS = ["gpt", "ncf", "seq2seq", "dcgan", "bert", "resnet"]
# On a shared machine, spinning OpenMP threads would make the result depend on other load.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
keep_pages()
# Sentences are padded to the longest of a batch, so the peak is the maximum of several runs that
# profile different batches.
PEAK_RUNS = 5
# The memory limit, relative to the peak at the default batch size.
LIMIT_FACTOR = 1.6


class Session:
    """A language server with one open demo."""

    def __init__(self, binary: str, python: str, project: Path) -> None:
        self.project = project
        self.client = Client([binary, "lsp"], project, {"interpreter": python, "watchFiles": False})
        script = project / "train.py"
        self.uri = script.as_uri()
        text = {"uri": self.uri, "languageId": "python", "version": 1, "text": script.read_text()}
        self.client.notify("textDocument/didOpen", {"textDocument": text})
        self.client.notify("textDocument/didSave", {"textDocument": {"uri": self.uri}})
        self.client.wait("the start of a run", lambda m: state(m) == "running")
        self.client.wait("its end", lambda m: state(m) in ("idle", "failed"))
        self.command("ridgeline.openPanel")
        _, message = self.client.wait(
            "the panel's address", lambda m: "panel is at" in shown_message(m)
        )
        found = re.search(r"http\S+", shown_message(message))
        assert found is not None
        self.address = found[0]

    def command(self, name: str, **more: Any) -> None:
        arguments = [{"uri": self.uri, **more}]
        self.client.request("workspace/executeCommand", {"command": name, "arguments": arguments})

    def batch_sizes(self) -> dict[str, Any]:
        """Returns the predictions after the batch-size sweep is complete."""
        self.command("ridgeline.exploreBatchSize")
        base, query = self.address.split("?")
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"{base}api/panel?{query}") as answer:
                predictions = json.load(answer)["predictions"]
            sizes = predictions and predictions["batch_size"]
            if sizes and sizes["state"] != "measuring":
                return sizes
            time.sleep(0.5)
        raise TimeoutError(f"the batch-size sweep of {self.project.name} did not finish")

    def limit(self, limit: int) -> None:
        settings = {"ridgeline": {"interpreter": None, "batchSize.memoryLimit": f"{limit} B"}}
        self.client.notify("workspace/didChangeConfiguration", {"settings": settings})


def state(message: dict[str, Any]) -> str:
    return message["params"]["state"] if message["method"] == "ridgeline/status" else ""


def shown_message(message: dict[str, Any]) -> str:
    return str(message["params"]["message"]) if message["method"] == "window/showMessage" else ""


def measured(
    args: argparse.Namespace, project: Path, batch: int, iterations: int = 5
) -> dict[str, Any]:
    """Profiles the demo at a batch size. A large batch leaves few iterations per epoch, and a run
    that ends early does not report its peak.
    """
    out = project.parent / "profile.json"
    command = [args.binary, "profile", project / "train.py", "--python", args.python]
    command += ["--json", out, "--iterations", str(iterations), "--", "--batch-size", str(batch)]
    # A separate cache: a server shows what was measured from the terminal for its project.
    environment = {**os.environ, "RIDGELINE_CACHE_DIR": str(project.parent / "truth")}
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, env=environment, stdout=quiet, stderr=quiet)
    return json.loads(out.read_text())


def prediction_at(sizes: dict[str, Any], batch: int) -> dict[str, Any]:
    """Returns the prediction at a batch size, interpolated between points if necessary."""
    points = sizes["points"]
    after = next(point for point in points if point["batch"] >= batch)
    if after["batch"] == batch:
        return after
    before = points[points.index(after) - 1]
    share = (batch - before["batch"]) / (after["batch"] - before["batch"])
    interpolated = {}
    for key in ("time_ns", "peak_bytes"):
        low, high = before[key]["value"], after[key]["value"]
        interpolated[key] = {"value": low + (high - low) * share}
    return interpolated


def halves(
    args: argparse.Namespace, project: Path, sizes: dict[str, Any]
) -> list[tuple[float, float]]:
    current = sizes["current"]
    compared = (current // 2, current * 2)
    batches = (*compared, current // 4, current * 3) if args.far else compared
    current_ns = prediction_at(sizes, current)["time_ns"]["value"]
    script = project / "train.py"
    errors = []
    for batch in batches:
        predicted = prediction_at(sizes, batch)
        # The machine's speed changes within seconds. So both batch sizes run side by side,
        # alternating every few iterations, and only the ratio of their times is compared.
        measured_speedup = speedup(
            args.python,
            script,
            script,
            steps=STEPS.get(project.name, 1),
            arguments=[*LONG[project.name], "--batch-size", str(current)],
            arguments_after=[*LONG[project.name], "--batch-size", str(batch)],
            rounds=args.rounds,
            processes=args.processes,
        )
        ratio = 1 / measured_speedup["speedup"]
        by_process = measured_speedup["of_processes"]
        low, high = 1 / max(by_process), 1 / min(by_process)
        runs = (measured(args, project, batch, timed) for timed in range(2, 2 + PEAK_RUNS))
        peak = max(run["memory"]["peak_bytes"] for run in runs)
        time_error = predicted["time_ns"]["value"] / current_ns / ratio - 1
        peak_error = predicted["peak_bytes"]["value"] / peak - 1
        if batch in compared:
            errors.append((time_error, peak_error))
        print(
            f"{project.name:8} batch {batch:5}: {ratio:5.3f} ({low:.3f} to {high:.3f}) times as "
            f"long ({time_error:+.1%}), peak {peak / 1e6:8.2f} MB ({peak_error:+.2%})",
            flush=True,
        )
    return errors


def largest(args: argparse.Namespace, session: Session, sizes: dict[str, Any]) -> int:
    """Returns the error of the predicted largest batch size under a memory limit."""
    limit = int(prediction_at(sizes, sizes["current"])["peak_bytes"]["value"] * LIMIT_FACTOR)
    session.limit(limit)
    predicted = session.batch_sizes()["largest"]
    if predicted is None:
        print(f"{session.project.name:8} no largest batch under {limit} bytes")
        return 10**9
    # The peak grows with the batch size: start at the prediction and step to where it crosses the
    # limit.
    value = predicted["value"]
    fits = measured(args, session.project, value, 2)["memory"]["peak_bytes"] <= limit
    step, actual = (1, value) if fits else (-1, value - 1)
    for _ in range(8):
        candidate = actual + 1 if step > 0 else actual
        fits_limit = measured(args, session.project, candidate, 2)["memory"]["peak_bytes"] <= limit
        if fits_limit == (step < 0):
            break
        actual += step
    print(
        f"{session.project.name:8} largest under {limit / 1e6:.1f} MB: predicted {value} "
        f"({predicted['low']} to {predicted['high']}), actual {actual}"
    )
    return abs(value - actual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument(
        "--far", action="store_true", help="also batch sizes that were not measured"
    )
    parser.add_argument("demos", nargs="*", default=DEMOS)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ridgeline-bench-"))
    try:
        os.environ["RIDGELINE_CACHE_DIR"] = str(work / "cache")
        os.environ["RIDGELINE_STATE_DIR"] = str(work / "state")
        errors, batch_errors = [], []
        for demo in args.demos:
            project = work / demo
            shutil.copytree(REPOSITORY / "demo-projects" / demo, project)
            session = Session(args.binary, args.python, project)
            sizes = session.batch_sizes()
            print(f"{demo:8} {sizes['site']} {sizes['message'] or ''}")
            errors += halves(args, project, sizes)
            batch_errors.append(largest(args, session, sizes))
            session.client.close()
        worst_time = max(abs(time_error) for time_error, _ in errors)
        worst_peak = max(abs(peak_error) for _, peak_error in errors)
        print(
            f"worst error: time {worst_time:.1%} (target: 5%), peak {worst_peak:.2%} (target: 3%)"
        )
        print(f"largest batch: off by at most {max(batch_errors)} (target: 1)")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
