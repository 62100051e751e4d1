"""Who gives the signals by which iterations are found, and from where."""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Hashable

import torch

from ..program.sources import Sources


class Signals:
    """The thread that trains, the optimizers that live, and the user's line of a call."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._thread: int | None = None
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []

    def on_our_thread(self) -> bool:
        """Whether this is the thread that trains: the first that gave a signal."""
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        return self._thread == here

    def forget_thread(self) -> None:
        """In a forked child, which has threads of its own."""
        self._thread = None

    def may_be_our_thread(self) -> bool:
        """The same, without deciding which it is."""
        return self._thread in (None, threading.get_ident())

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's constructor was entered."""
        self._optimizers.append(weakref.ref(optimizer))

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that live, in the order in which they were made."""
        found = [reference() for reference in self._optimizers]
        # One that wraps another may have no parameters of its own, and no constructor run.
        return [item for item in found if item is not None and hasattr(item, "param_groups")]

    def optimizer_ids(self) -> set[Hashable]:
        """What tells those that live apart."""
        return {id(item) for item in self.optimizers()}

    def place(self, frame: types.FrameType | None) -> Hashable:
        """The user's line that made this call."""
        while frame is not None:
            if self._sources.code(frame.f_code) is not None:
                return (id(frame.f_code), frame.f_lineno)
            frame = frame.f_back
        return None
