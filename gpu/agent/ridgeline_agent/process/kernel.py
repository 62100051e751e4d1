"""Records one cell in a running kernel: the program continues after the recording, so everything
that the recorder replaced is restored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from ..patches.overlay import Overlay
from ..program import notebook_cells
from ..protocol.spec import RunSpec
from ..record.recorder import Recorder


class Cells(Protocol):
    """The cells that ran in this kernel. `ridgeline._cells` of the wheel implements it."""

    # By path: the text as it is in the notebook, and the same as Python.
    texts: dict[str, str]
    python: dict[str, str]

    def path_of_file(self, filename: str) -> str | None:
        """Returns the path of a cell, given the file name of its code objects; None for files."""


class CellRecording:
    """The recording of one cell, from `start` to `end`.

    Args:
        request: A `run` request (docs/agent-protocol.md). Its entry is not run.
        cells: The cells of the kernel.
        optimizers: Existing optimizers that the cell names.
    """

    def __init__(
        self,
        request: dict[str, Any],
        cells: Cells,
        optimizers: Iterable[torch.optim.Optimizer],
    ) -> None:
        self._spec = RunSpec.from_json(request)
        self._cells = cells
        self._optimizers = list(optimizers)
        self._host = KernelHost(self._uninstall)
        self._recorder: Recorder | None = None

    def start(self) -> None:
        """Installs the recorder. Raises an exception if the cell cannot be recorded."""
        if not hasattr(sys, "monitoring") and sys.gettrace() is not None:
            raise RuntimeError("a debugger or tracer is active (sys.settrace)")
        if torch.autograd._profiler_enabled():
            raise RuntimeError("another PyTorch profiler is active")
        notebook_cells.cell_of_file = self._path_of_file
        spec = self._spec
        recorder = self._recorder = Recorder(
            spec, self._host, Overlay(spec.root, {}), in_kernel=True
        )
        try:
            recorder.adopt(self._optimizers, self._give_way)
            recorder.install()
        except BaseException:
            self._uninstall()
            raise

    def end(self, is_failed: bool) -> str | None:
        """The cell has ended, with an exception if `is_failed`. Returns None if it was recorded, or
        the reason why not.
        """
        recorder = self._recorder
        if recorder is not None and self._host.outcome is None:
            self._finish_early(recorder, is_failed)
        outcome, message = self._host.outcome or ("exited", None)
        return None if outcome == "complete" else message or "nothing was recorded"

    def _finish_early(self, recorder: Recorder, is_failed: bool) -> None:
        message = None
        try:
            outcome = recorder.ended()
            if outcome != "complete" and is_failed:
                message = "the cell failed before enough iterations ran"
            elif outcome != "complete":
                message = _too_few(recorder.iterations_seen(), self._spec)
        except Exception as error:
            outcome, message = "exited", f"{type(error).__name__}: {error}"
        if self._host.outcome is None:
            self._host.finish(outcome, message)

    def _path_of_file(self, filename: str) -> str | None:
        path = self._cells.path_of_file(filename)
        if path is not None:
            real = os.path.realpath(path)
            text, python = self._cells.texts[path], self._cells.python[path]
            notebook_cells.TEXTS[real] = text.encode("utf-8", "surrogateescape")
            notebook_cells.PYTHON[real] = python.encode("utf-8", "surrogateescape")
        return path

    def _give_way(self) -> None:
        self._host.finish("exited", "the cell runs a PyTorch profiler of its own")

    def _uninstall(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.uninstall()
        notebook_cells.cell_of_file = None
        notebook_cells.TEXTS.clear()
        notebook_cells.PYTHON.clear()


class KernelHost:
    """The recorder's host in a kernel (host.Host)."""

    def __init__(self, uninstall: Callable[[], None]) -> None:
        self._uninstall = uninstall
        # The outcome and its message, once the recording has ended.
        self.outcome: tuple[str, str | None] | None = None

    def progress(self, stage: str, done: int, total: int) -> None:
        """Reports to nobody: the cell has its own output."""

    def timed(self, iterations: int) -> None:
        """See host.Host. There are no turns."""

    def finish(self, outcome: str, message: str | None = None) -> Any:
        """Ends the recording. The cell continues without hooks."""
        if self.outcome is None:
            self.outcome = (outcome, message)
            self._uninstall()


def _too_few(seen: int, spec: RunSpec) -> str:
    wanted = spec.iterations
    needed = wanted.warmup + wanted.timed + min(wanted.profiled, 1)
    if seen == 0:
        return "the cell ran no optimizer step, no backward pass and no module"
    count = "1 iteration" if seen == 1 else f"{seen} iterations"
    return f"the cell ran {count}, and a profile needs at least {needed}: run more in this cell"
