"""Recording in a process that continues: everything is restored, and nothing is kept."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ridgeline_agent.process.kernel import CellRecording


class NoCells:
    """The files of this process are no cells."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.python: dict[str, str] = {}

    def path_of_file(self, filename: str) -> str | None:
        return None


def in_child(test: Callable[[Path], None]) -> None:
    """Runs a test in a forked process, because this one runs no operators."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-kernel-") as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                test(folder)
                code = 0
            except BaseException:
                (folder / "error.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        error = folder / "error.txt"
        assert status == 0, error.read_text() if error.exists() else status


def recording(folder: Path, *optimizers: torch.optim.Optimizer) -> CellRecording:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    request = {
        "op": "run",
        "id": 0,
        "out": str(out),
        "root": str(Path(__file__).parent),
        "entry": {"kind": "script", "path": __file__},
        "iterations": {"warmup": 1, "timed": 3, "timed_at_most": 6, "profiled": 2},
    }
    return CellRecording(request, NoCells(), optimizers)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def patched() -> list[Any]:
    hooks: Any = sys.modules["torch.optim.optimizer"]
    monitoring: Any = getattr(sys, "monitoring", None)
    return [
        nn.Module.__call__,
        nn.Module.__init__,
        nn.Module.__setstate__,
        torch.Tensor.backward,
        torch.autograd.grad,
        torch.compile,
        torch.optim.SGD.step,
        torch.optim.SGD.zero_grad,
        torch.optim.Optimizer.__init__,
        torch.optim.Optimizer._patch_step_function,
        torch.amp.GradScaler.step,
        torch.cuda.CUDAGraph.replay,
        torch.utils.data.DataLoader.__iter__,
        torch.autograd.profiler.profile.__enter__,
        torch.autograd.profiler.profile._start_trace,
        len(hooks._global_optimizer_pre_hooks),
        len(hooks._global_optimizer_post_hooks),
        [] if monitoring is None else [monitoring.get_tool(tool) for tool in range(6)],
        sys.gettrace(),
        torch.autograd._profiler_enabled(),
        os.getcwd(),
    ]


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out/manifest.json").read_text()))


def test_existing_state_is_recorded_and_everything_is_restored() -> None:
    def test(folder: Path) -> None:
        torch.set_num_threads(1)
        model = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = patched()
        cell = recording(folder, optimizer)
        cell.start()
        assert patched() != before
        for _ in range(100):
            train(model, optimizer, 50)
            if patched() == before:
                break
        else:
            raise AssertionError("it has not ended within the loop")
        assert cell.end(is_failed=False) is None
        written = manifest(folder)
        assert written["status"] == "complete"
        assert written["iterations"]["found_by"] == "optimizer"
        assert [module["type"] for module in written["modules"]] == ["Linear"]
        assert [one["type"] for one in written["optimizers"]] == ["SGD"]

    in_child(test)


def test_too_few_iterations() -> None:
    def test(folder: Path) -> None:
        torch.set_num_threads(1)
        model = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = patched()
        for count, reason in ((2, "2 iterations"), (1, "1 iteration,"), (0, "no optimizer step")):
            cell = recording(folder)
            cell.start()
            train(model, optimizer, count)
            assert reason in str(cell.end(is_failed=False))
            assert patched() == before
        cell = recording(folder)
        cell.start()
        assert "the cell failed" in str(cell.end(is_failed=True))
        assert patched() == before

    in_child(test)


def test_nothing_is_kept_alive() -> None:
    # In its own function, because a frame whose variables were read keeps them.
    def record(folder: Path) -> list[weakref.ref[Any]]:
        cell = recording(folder)
        cell.start()
        model = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        # It keeps a bound `step`.
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        train(model, optimizer, 150)
        assert cell.end(is_failed=False) is None
        train(model, scheduler.optimizer, 1)
        return [weakref.ref(model), weakref.ref(optimizer), weakref.ref(cell)]

    def test(folder: Path) -> None:
        torch.set_num_threads(1)
        kept = record(folder)
        gc.collect()
        assert [reference() for reference in kept] == [None] * len(kept)

    in_child(test)
