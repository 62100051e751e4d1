"""Measures the cost of redirecting a run's writes: timed iterations with and without it, side by
side.

    python tests/bench/redirected_runs.py [--pairs 9]

Runs the GPT demo and a loop that reads each batch from files, alternating between `side_effects`
"allow" and "redirect", and prints the ratio of the medians of each pair. The Python needs torch.
Linux only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "gpu/agent/tests"))

from agent_driver import Agent  # noqa: E402

READS_FILES = """\
import glob, torch
class Files(torch.utils.data.Dataset):
    def __init__(self):
        self.files = sorted(glob.glob("data/*.pt"))
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        return torch.load(self.files[index % len(self.files)])
loader = torch.utils.data.DataLoader(Files(), batch_size=16)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
)
model(torch.zeros(1, 3, 64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=9)
    pairs = arguments.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        projects = {"reads files": (reads_files(Path(folder)), 40), "gpt": (gpt(Path(folder)), 8)}
        with Agent() as agent:
            agent.wait_for("ready")
            for name, (project, timed) in projects.items():
                compare(agent, name, project, timed, pairs)


def reads_files(folder: Path) -> Path:
    import torch

    project = folder / "reads_files"
    (project / "data").mkdir(parents=True)
    for number in range(400):
        torch.save(torch.randn(3, 64, 64), project / "data" / f"{number}.pt")
    (project / "train.py").write_text(READS_FILES)
    return project


def gpt(folder: Path) -> Path:
    return Path(shutil.copytree(REPOSITORY / "demo-projects/gpt", folder / "gpt"))


def compare(agent: Agent, name: str, project: Path, timed: int, pairs: int) -> None:
    ratios, extra_seconds = [], []
    for pair in range(pairs + 1):
        modes = ("allow", "redirect") if pair % 2 else ("redirect", "allow")
        results = {mode: measure(agent, project, timed, mode) for mode in modes}
        if pair == 0:
            continue  # The first runs warm up caches.
        ratios.append(results["redirect"][0] / results["allow"][0])
        extra_seconds.append(results["redirect"][1] - results["allow"][1])
        print(f"{name}, pair {pair}: {ratios[-1]:.3f}", flush=True)
    print(
        f"{name}: median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
        f"{max(ratios):.3f}), the whole run takes {statistics.median(extra_seconds):.2f} s longer"
    )


def measure(agent: Agent, project: Path, timed: int, mode: str) -> tuple[float, float]:
    """Returns the median iteration in nanoseconds, and the whole run in seconds."""
    out = project.parent / "recording"
    shutil.rmtree(out, ignore_errors=True)
    entry = {"kind": "script", "path": str(project / "train.py")}
    iterations = {"warmup": 3, "timed": timed, "profiled": 1}
    start = time.monotonic()
    identifier = agent.start_entry(
        project, entry, out=str(out), side_effects=mode, iterations=iterations, device="cpu"
    )
    finished = agent.wait_for("finished", id=identifier)
    seconds = time.monotonic() - start
    if finished["outcome"] != "complete":
        raise SystemExit(f"the run failed: {finished}")
    manifest = json.loads((out / "manifest.json").read_text())
    return statistics.median(manifest["iterations"]["timed_ns"]), seconds


if __name__ == "__main__":
    main()
