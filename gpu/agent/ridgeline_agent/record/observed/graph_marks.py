"""Detects whether a backward pass used the results of a call.

A mark is a hook on a node of autograd's graph. It is called if a backward pass runs the node, and
it disappears together with the graph, so a graph that was freed without a call was used by no
backward pass. Marks hold no tensor and keep no graph alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

# The maximum number of marks per call, including the modules inside of it.
_MAX_MARKS = 512
# The maximum number of parts of a returned object that are searched.
_MAX_PARTS = 256


class BackwardPasses:
    """The number of the current backward pass."""

    def __init__(self) -> None:
        self.number = 0


class MarkedCall:
    """A call whose results are marked, and the backward passes that used them."""

    def __init__(self, passes: BackwardPasses) -> None:
        self._passes = passes
        self._marks: list[weakref.ref[_Mark]] = []
        self.used_by: set[int] = set()
        # Whether something was returned whose use cannot be detected.
        self.is_unclear = False
        self.tensors = 0

    @property
    def has_graph(self) -> bool:
        """Whether any result belongs to autograd's graph."""
        return bool(self._marks)

    @property
    def graph_is_gone(self) -> bool:
        """Whether the entire marked graph has been freed."""
        return all(mark() is None for mark in self._marks)

    def mark(self, output: Any, is_own_result: bool) -> None:
        """Marks the call's result, or unless `is_its_own`, the result of a module inside of it."""
        tensors, complete = _tensors_in(output)
        if is_own_result:
            self.tensors += len(tensors)
            self.is_unclear |= not complete
        for tensor in tensors:
            if not tensor.requires_grad:
                continue
            node = tensor.grad_fn
            if node is None:
                # A parameter itself, which other calls may have used too.
                self.is_unclear |= is_own_result
            elif len(self._marks) < _MAX_MARKS or is_own_result:
                mark = _Mark(self)
                try:
                    node.register_prehook(mark)
                except (AttributeError, RuntimeError):
                    self.is_unclear = True
                    continue
                self._marks.append(weakref.ref(mark))

    def used(self) -> None:
        """A backward pass used the results."""
        self.used_by.add(self._passes.number)


class _Mark:
    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: MarkedCall) -> None:
        self._call = call

    def __call__(self, *gradients: Any) -> None:
        self._call.used()


def _tensors_in(output: Any) -> tuple[list[torch.Tensor], bool]:
    """Returns the tensors of an output, and whether all of it was searched."""
    found: list[torch.Tensor] = []
    try:
        complete = _collect(output, found)
    except Exception:
        # The program's objects may raise when they are inspected.
        complete = False
    return found, complete and not any(isinstance(one, FakeTensor) for one in found)


def _collect(output: Any, found: list[torch.Tensor]) -> bool:
    pending = [output]
    for _ in range(_MAX_PARTS):
        if not pending:
            break
        part = pending.pop()
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, Mapping):
            pending.extend(list(part.values())[: _MAX_PARTS + 1])
        elif isinstance(part, (list, tuple)):
            pending.extend(part[: _MAX_PARTS + 1])
        elif hasattr(part, "__dict__") and not isinstance(part, (type, torch.nn.Module)):
            pending.extend(vars(part).values())
    return not pending
