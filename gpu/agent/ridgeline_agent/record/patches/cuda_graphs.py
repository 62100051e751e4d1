"""Observes captures and replays of CUDA graphs.

While a stream captures, the process must not synchronize with the device, or record or query an
event, so everything that measures must know about captures anywhere in the process. All of them go
through `torch.cuda.CUDAGraph`: those of `torch.cuda.graph`, `make_graphed_callables` and Inductor.

Checked on torch 2.15.0, on a simulated GPU.
"""

from __future__ import annotations

import functools
import re
import sys
import types
import weakref
from typing import Any, Protocol

import torch

from ...iterations.finder import BACKWARD, MODULE, OPTIMIZER
from ...patches.replacements import replace
from ...program.batch import BatchWatch

# A program whose text matches may capture its training step.
MENTIONS_CAPTURE = re.compile(rb"\bCUDAGraph\b|\bcuda\.graph\b|\bmake_graphed_callables\b")
_INDUCTOR = "torch._inductor."


class Listener(Protocol):
    """Receives the hooks' calls. None of these methods may raise."""

    def capture_begins(self, capture: Capture) -> None:
        """A capture is about to begin. Nothing is captured yet."""

    def capture_ended(self, capture: Capture) -> None:
        """The capture ended, normally or not."""

    def replay_begins(self, capture: Capture | None) -> object:
        """A graph is about to be launched. `capture` is None if its capture was not seen. The
        result is passed to `replayed`.
        """

    def replayed(self, capture: Capture | None, started_replay: object) -> None:
        """The graph was launched."""


class Capture:
    """One capture of a graph, and the training signals in it."""

    def __init__(self, number: int, is_from_inductor: bool) -> None:
        self.number = number
        # Whether it is Inductor's: it captures what it compiled, within the program's iterations.
        self.is_from_inductor = is_from_inductor
        # The strongest signal of a replay, from what ran during the capture.
        self.strongest_signal = MODULE
        self.optimizers: set[int] = set()
        # The inputs of the captured modules.
        self.batch = BatchWatch()

    def went_backward(self) -> None:
        """A backward pass was captured."""
        if self.strongest_signal == MODULE:
            self.strongest_signal = BACKWARD

    def stepped(self, optimizer: object) -> None:
        """An optimizer's step was captured."""
        self.strongest_signal = OPTIMIZER
        self.optimizers.add(id(optimizer))


class CudaGraphs:
    """Observes all captures from `install` on."""

    def __init__(self) -> None:
        self.count = 0
        self._captures: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()
        # Captures in progress. A graph that was deleted captures no more.
        self._open: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()

    def install(self, listener: Listener) -> None:
        """Call it before any user code runs."""
        kind: Any = torch.cuda.CUDAGraph
        begin, end, replay = (
            getattr(kind, name, None) for name in ("capture_begin", "capture_end", "replay")
        )
        if begin is None or end is None or replay is None:
            # A build of torch without CUDA.
            return
        graphs = self

        @functools.wraps(begin)
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            capture = Capture(graphs.count, _is_called_by(sys._getframe(1), _INDUCTOR))
            graphs.count += 1
            listener.capture_begins(capture)
            graphs._captures[self] = graphs._open[self] = capture
            try:
                return begin(self, *args, **kwargs)
            except BaseException:
                graphs._open.pop(self, None)
                listener.capture_ended(capture)
                raise

        @functools.wraps(end)
        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return end(self, *args, **kwargs)
            finally:
                capture = graphs._open.pop(self, None)
                if capture is not None:
                    listener.capture_ended(capture)

        @functools.wraps(replay)
        def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
            capture = graphs._captures.get(self)
            started_replay = listener.replay_begins(capture)
            try:
                return replay(self, *args, **kwargs)
            finally:
                listener.replayed(capture, started_replay)

        replace(kind, "capture_begin", capture_begin)
        replace(kind, "capture_end", capture_end)
        replace(kind, "replay", replayed)

    @property
    def open(self) -> Capture | None:
        """The latest capture in progress."""
        return next(reversed(list(self._open.values())), None) if self._open else None

    def is_capturing(self) -> bool:
        """Whether any code captures at this moment."""
        if self._open:
            return True
        # A library that calls the runtime itself: only known for the current stream.
        return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _is_called_by(frame: types.FrameType | None, module: str) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(module):
            return True
        frame = frame.f_back
    return False
