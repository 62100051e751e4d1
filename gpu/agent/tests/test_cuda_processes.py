"""GPU programs with a single iteration, and programs that train in child processes.

Without a GPU, use the simulated device: `tests/gpu/simulated/run pytest …`.
"""

from __future__ import annotations

from pathlib import Path

from agent_driver import Agent, log, manifest
from cuda import needs_cuda

pytestmark = needs_cuda

TRAINING = """\
import torch
import torch.multiprocessing as mp
def train(rank=0, iterations=10_000):
    model = torch.nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(iterations * 4, 64)
    for batch in torch.utils.data.DataLoader(data, 4, num_workers=1, pin_memory=True):
        optimizer.zero_grad()
        model(batch.cuda()).sum().backward()
        optimizer.step()
if __name__ == "__main__":
"""


def test_single_iteration(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "    train(iterations=1)\n"
    hints = {"found_by": "optimizer", "signals": {"first": 0, "every": 1}}
    timed, last = tmp_path / "run-1", tmp_path / "out"
    for out, counts, earlier in ((timed, (1, 0), []), (last, (0, 1), [str(timed)])):
        iterations = {"warmup": 0, "timed": counts[0], "profiled": counts[1], **hints}
        request = {"out": str(out), "iterations": iterations, "earlier": earlier}
        finished = agent.run(tmp_path, text, **request)
        assert finished["outcome"] == "complete", (finished, log(tmp_path).decode())
    iterations = manifest(tmp_path)["iterations"]
    assert len(iterations["timed_ns"]) == len(iterations["timed_device_ns"]) == 1
    assert manifest(tmp_path)["kernels_missing"] is None
    assert '"cat": "kernel"' in (last / "trace.json").read_text()


def test_child_processes(agent: Agent, tmp_path: Path) -> None:
    finished = agent.run(tmp_path, TRAINING + "    mp.spawn(train, nprocs=2)\n")
    assert finished["outcome"] == "complete", (finished, log(tmp_path).decode())
    result = manifest(tmp_path)
    assert (result["device"]["kind"], result["child_processes"]) == ("cuda", 2)
    # The other child process belongs to the program.
    assert result["observed"]["gpu"]["other_processes"] in (0, None)
    assert '"cat": "kernel"' in (tmp_path / "out" / "trace.json").read_text()
