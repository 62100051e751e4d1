"""Tells whether a backward pass came through what a call computed.

A mark hangs on a node of autograd's graph as one of its hooks. It is called when a backward pass
runs the node, and it is gone when the graph is: so that a graph that was freed without a call is
known to have served no backward pass. Marks hold no tensor and keep no graph alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

# Of what one call returns, in itself and in the modules within it.
_MOST_MARKS = 512
# Parts of a returned object that are looked through.
_MOST_PARTS = 256


class BackwardPasses:
    """The number of the backward pass that is under way."""

    def __init__(self) -> None:
        self.number = 0


class MarkedCall:
    """A call whose results are marked, and the backward passes that used them."""

    def __init__(self, passes: BackwardPasses) -> None:
        self._passes = passes
        self._marks: list[weakref.ref[_Mark]] = []
        self.used_by: set[int] = set()
        # Whether something was returned whose use cannot be told.
        self.is_unclear = False
        # How many tensors it returned.
        self.tensors = 0

    @property
    def has_graph(self) -> bool:
        """Whether something that it computed belongs to autograd's graph."""
        return bool(self._marks)

    @property
    def graph_is_gone(self) -> bool:
        """Whether all of the graph that was marked has been freed."""
        return all(mark() is None for mark in self._marks)

    def mark(self, output: Any, is_its_own: bool) -> None:
        """Marks what the call returned, or where not `is_its_own`, what a module within it did."""
        tensors, complete = _tensors_in(output)
        if is_its_own:
            self.tensors += len(tensors)
            self.is_unclear |= not complete
        for tensor in tensors:
            if not tensor.requires_grad:
                continue
            node = tensor.grad_fn
            if node is None:
                # A parameter itself, which other calls may have used as well.
                self.is_unclear |= is_its_own
            elif len(self._marks) < _MOST_MARKS or is_its_own:
                mark = _Mark(self)
                try:
                    node.register_prehook(mark)
                except (AttributeError, RuntimeError):
                    self.is_unclear = True
                    continue
                self._marks.append(weakref.ref(mark))

    def used(self) -> None:
        """A backward pass came through."""
        self.used_by.add(self._passes.number)


class _Mark:
    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: MarkedCall) -> None:
        self._call = call

    def __call__(self, *gradients: Any) -> None:
        self._call.used()


def _tensors_in(output: Any) -> tuple[list[torch.Tensor], bool]:
    """The tensors of an output, and whether all of it was looked through."""
    found: list[torch.Tensor] = []
    try:
        complete = _collect(output, found)
    except Exception:
        # Objects of the program's own may refuse to be looked through.
        complete = False
    return found, complete and not any(isinstance(one, FakeTensor) for one in found)


def _collect(output: Any, found: list[torch.Tensor]) -> bool:
    waiting = [output]
    for _ in range(_MOST_PARTS):
        if not waiting:
            break
        part = waiting.pop()
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, Mapping):
            waiting.extend(list(part.values())[: _MOST_PARTS + 1])
        elif isinstance(part, (list, tuple)):
            waiting.extend(part[: _MOST_PARTS + 1])
        elif hasattr(part, "__dict__") and not isinstance(part, (type, torch.nn.Module)):
            waiting.extend(vars(part).values())
    return not waiting
