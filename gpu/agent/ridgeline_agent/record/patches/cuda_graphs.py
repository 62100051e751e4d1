"""CUDA graphs: what is captured, and what is replayed.

While a stream captures, the process must not synchronize with the device, or record or ask an
event, so everything that measures has to know of captures anywhere in the process. All of them go
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
from ...program.batch import BatchWatch

# A program whose text says so may capture its training step.
MENTIONS_CAPTURE = re.compile(rb"\bCUDAGraph\b|\bcuda\.graph\b|\bmake_graphed_callables\b")
_INDUCTOR = "torch._inductor."


class Listener(Protocol):
    """Who is told. None of these may raise."""

    def capture_begins(self, capture: Capture) -> None:
        """A capture is about to begin; nothing is captured yet."""

    def capture_ended(self, capture: Capture) -> None:
        """It ended, in whatever way."""

    def replay_begins(self, capture: Capture | None) -> object:
        """A graph is about to be launched; without a capture where that was not seen. What it
        returns is given to `replayed`.
        """

    def replayed(self, capture: Capture | None, begun: object) -> None:
        """It was launched."""


class Capture:
    """One capture of a graph, and the signals of training that it holds."""

    def __init__(self, number: int, is_compilers: bool) -> None:
        self.number = number
        # Of Inductor's: it captures what it compiled, within the iterations of the program.
        self.is_compilers = is_compilers
        # What a replay of the graph does; the strongest of what ran while it was captured.
        self.holds = MODULE
        self.optimizers: set[int] = set()
        # What the modules within were given.
        self.batch = BatchWatch()

    def went_backward(self) -> None:
        """A backward pass was captured."""
        if self.holds == MODULE:
            self.holds = BACKWARD

    def stepped(self, optimizer: object) -> None:
        """An optimizer's step was captured."""
        self.holds = OPTIMIZER
        self.optimizers.add(id(optimizer))


class CudaGraphs:
    """Listens from `install` on."""

    def __init__(self) -> None:
        self.count = 0
        self._captures: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()
        # Those under way. A graph that is gone captures no more.
        self._open: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()

    def install(self, listener: Listener) -> None:
        """Call it before any of the user's code runs."""
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
            begun = listener.replay_begins(capture)
            try:
                return replay(self, *args, **kwargs)
            finally:
                listener.replayed(capture, begun)

        kind.capture_begin, kind.capture_end, kind.replay = capture_begin, capture_end, replayed

    @property
    def open(self) -> Capture | None:
        """The capture that began last of those under way."""
        return next(reversed(list(self._open.values())), None) if self._open else None

    def is_capturing(self) -> bool:
        """Whether anything is captured at this moment, by whomever."""
        if self._open:
            return True
        # By a library that calls the runtime itself: known of the stream that is current only.
        return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _is_called_by(frame: types.FrameType | None, module: str) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(module):
            return True
        frame = frame.f_back
    return False
