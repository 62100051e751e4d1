"""The sources of the signals that determine iterations."""

from __future__ import annotations

import itertools
import threading
import types
import weakref
from collections.abc import Hashable

import torch
from torch import nn

from ..program.sources import Sources

_MODULE_CALL: types.CodeType = nn.Module._call_impl.__code__
# Deeper calls are recursions.
_MAX_PLACES = 32


class Signals:
    """The training thread, the live optimizers, and the user's line of a call.

    The training thread is the first one that gave a signal, unless another one trains first.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._thread: int | None = None
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        # Whether optimizers may be older than the hooks.
        self.adopts = False

    def on_our_thread(self) -> bool:
        """Whether this is the training thread. The first thread that asks becomes it."""
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        return self._thread == here

    def claim_thread(self) -> None:
        """Makes this the training thread."""
        self._thread = threading.get_ident()

    def forget_thread(self) -> None:
        """Resets the thread in a forked child, which has other threads."""
        self._thread = None

    def may_be_our_thread(self) -> bool:
        """Like `on_our_thread`, but does not claim this thread."""
        return self._thread in (None, threading.get_ident())

    def optimizer_created(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))

    def stepped(self, optimizer: object) -> None:
        """An optimizer steps, whose construction may not have been seen."""
        may_be_unknown = self.adopts and isinstance(optimizer, torch.optim.Optimizer)
        if may_be_unknown and id(optimizer) not in self.optimizer_ids():
            self.optimizer_created(optimizer)

    def optimizer_types(self) -> set[type]:
        """Returns the classes of the live optimizers."""
        return {type(item) for item in self.optimizers()}

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Returns the live optimizers, in the order of their creation."""
        found = [reference() for reference in self._optimizers]
        # An optimizer that wraps another may have no parameters, and its constructor may not have
        # run.
        return [item for item in found if item is not None and hasattr(item, "param_groups")]

    def optimizer_ids(self) -> set[Hashable]:
        """Returns the object IDs of the live optimizers."""
        return {id(item) for item in self.optimizers()}

    def place(self, frame: types.FrameType | None) -> Hashable:
        """Returns the user's line that made this call."""
        while frame is not None:
            if self._sources.code(frame.f_code) is not None:
                return (id(frame.f_code), frame.f_lineno)
            frame = frame.f_back
        return None

    def places(self, frame: types.FrameType | None) -> Hashable:
        """Returns the user's lines that lead to this call, innermost first."""
        return tuple(itertools.islice(self._sources.user_lines(frame), _MAX_PLACES))


def is_in_module_call(frame: types.FrameType | None) -> bool:
    """Whether a module was called that has not returned. The hooks may not see it, because they do
    not follow modules all the time.
    """
    while frame is not None:
        if frame.f_code is _MODULE_CALL:
            return True
        frame = frame.f_back
    return False
