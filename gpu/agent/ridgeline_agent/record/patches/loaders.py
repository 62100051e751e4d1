"""How the program loads its data, and how long its own thread waits for it.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import types
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import data

from ...patches.module_construction import is_own_init
from ...program.batch import declared_batch_size
from ...program.sources import Sources
from .worker_loads import WorkerLoads

_MOST_LOADERS = 16
_MOST_FETCHES = 10_000
_MOST_PASSES = 1000
_MOST_SHAPES = 1000
# Of a batch, so many parts are looked at, so deep.
_MOST_PARTS = 32
_DEEPEST_PARTS = 3

Place = tuple[int, int]


class _Passes:
    """How the program went through the loaders of one data set."""

    def __init__(self, dataset: object, place: Place | None) -> None:
        # Kept, so that its identity stays its own.
        self.dataset = dataset
        self.place = place
        self.count = 0
        self.began_ns: int | None = None
        self.first_batch_ns: list[int] = []
        self.end_ns: list[int] = []
        self.shapes: set[tuple[int, ...] | None] = set()


class LoaderTimes:
    """One entry for each data set, in the order in which they were first loaded from."""

    def __init__(self, sources: Sources | None = None) -> None:
        self._sources = sources
        # By the identity of the data set, which is kept so that the identity stays its own.
        self._entries: dict[int, tuple[object, dict[str, Any]]] = {}
        self._passes: dict[int, _Passes] = {}
        # By the identity of the loader.
        self._made: dict[int, tuple[weakref.ref[Any], Place | None]] = {}
        self._worker_loads = WorkerLoads()
        self._began_ns = 0
        self._took_ns = 0
        # The same of the thread's time on a processor.
        self._began_cpu_ns = 0
        self._took_cpu_ns = 0

    def install(self) -> None:
        """Listens to where loaders are made, and to when the program goes through one."""
        loader: Any = data.DataLoader
        original_init, original_iter = loader.__init__, loader.__iter__

        @functools.wraps(original_init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original_init(self, *args, **kwargs)
            with contextlib.suppress(Exception):
                made(self)

        @functools.wraps(original_iter)
        def __iter__(self: Any) -> Any:
            began_ns = time.perf_counter_ns()
            iterator = original_iter(self)
            with contextlib.suppress(Exception):
                pass_began(self, iterator, began_ns)
            return iterator

        made, pass_began = self.made, self.pass_began
        loader.__init__, loader.__iter__ = __init__, __iter__
        # The classes that load are private to torch.
        with contextlib.suppress(AttributeError):
            self._worker_loads.install()

    def made(self, loader: Any) -> None:
        """A loader was made."""
        self._worker_loads.made(loader)
        if self._sources is None or len(self._made) >= _MOST_PASSES:
            return
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and is_own_init(frame, loader):
            frame = frame.f_back
        self._made[id(loader)] = (weakref.ref(loader), self._sources.innermost(frame))

    def pass_began(self, loader: Any, iterator: Any, began_ns: int) -> None:
        """The program began to go through a loader at `began_ns` of `perf_counter_ns`."""
        dataset = getattr(iterator, "_dataset", None)
        passes = self._passes.get(id(dataset))
        if passes is None:
            if len(self._passes) >= _MOST_LOADERS:
                return
            reference, place = self._made.get(id(loader), (None, None))
            known = reference is not None and reference() is loader
            passes = self._passes[id(dataset)] = _Passes(dataset, place if known else None)
        passes.count += 1
        passes.began_ns = began_ns

    def begins(self) -> None:
        """A loader is asked for a batch."""
        self._began_ns = time.perf_counter_ns()
        self._began_cpu_ns = time.thread_time_ns()

    def ends(self) -> None:
        """It gave one, or had none left."""
        self._took_cpu_ns = time.thread_time_ns() - self._began_cpu_ns
        self._took_ns = time.perf_counter_ns() - self._began_ns

    def loaded(self, loader: Any, timed: bool, batch: object = None) -> None:
        """The batch is this loader's; `timed` where the iteration is timed without a profiler."""
        dataset = getattr(loader, "_dataset", None)
        known = self._entries.get(id(dataset))
        if known is None:
            if len(self._entries) >= _MOST_LOADERS:
                return
            known = self._entries[id(dataset)] = (dataset, _described(loader))
        fetches = known[1]["fetch_ns"]
        if timed and len(fetches) < _MOST_FETCHES:
            fetches.append(self._took_ns)
            known[1]["fetch_cpu_ns"] += self._took_cpu_ns
        passes = self._passes.get(id(dataset))
        if passes is not None:
            if passes.began_ns is not None and len(passes.first_batch_ns) < _MOST_PASSES:
                passes.first_batch_ns.append(time.perf_counter_ns() - passes.began_ns)
            passes.began_ns = None
            if len(passes.shapes) < _MOST_SHAPES:
                passes.shapes.add(_shape(batch))

    def ran_out(self, loader: Any) -> None:
        """It was asked for a batch and has none left. Workers that do not stay end in that time."""
        passes = self._passes.get(id(getattr(loader, "_dataset", None)))
        if passes is not None and len(passes.end_ns) < _MOST_PASSES:
            passes.end_ns.append(time.perf_counter_ns() - self._began_ns)

    def forget_times(self) -> None:
        """What was timed counts for nothing: the timing begins anew."""
        for _, entry in self._entries.values():
            entry["fetch_ns"].clear()
            entry["fetch_cpu_ns"] = 0

    def json(self) -> list[dict[str, Any]]:
        """`loaders` of the manifest."""
        described = []
        for identity, (dataset, entry) in self._entries.items():
            passes = self._passes.get(identity)
            loads = {"worker_load_ns": self._worker_loads.batch_ns(dataset)}
            described.append({**entry, **loads, **({} if passes is None else _passes_json(passes))})
        return described


def _passes_json(passes: _Passes) -> dict[str, Any]:
    place = passes.place
    return {
        "at": None if place is None else {"file": place[0], "line": place[1]},
        "passes": passes.count,
        "first_batch_ns": passes.first_batch_ns,
        "end_ns": passes.end_ns,
        # A batch without tensors has no shape.
        "distinct_shapes": len(passes.shapes - {None}) or None,
    }


def _shape(batch: object) -> tuple[int, ...] | None:
    """The shape of the largest of a batch's first tensors; labels may be as many as they are.

    Cheap, because each batch of the timed iterations is asked.
    """
    if isinstance(batch, torch.Tensor):
        return tuple(batch.shape)
    largest, shape = -1, None
    waiting: list[tuple[Any, int]] = [(batch, 0)]
    for part, depth in waiting:
        if isinstance(part, torch.Tensor):
            if part.numel() > largest:
                largest, shape = part.numel(), tuple(part.shape)
        elif depth < _DEEPEST_PARTS and len(waiting) < _MOST_PARTS:
            parts: Any = ()
            if isinstance(part, (list, tuple)):
                parts = part[:_MOST_PARTS]
            elif isinstance(part, Mapping):
                parts = list(part.values())[:_MOST_PARTS]
            waiting.extend((one, depth + 1) for one in parts)
    return shape


def _described(loader: Any) -> dict[str, Any]:
    """`loader` is the iterator, which has what its loader was given."""
    workers = getattr(loader, "_num_workers", None)
    factor = getattr(loader, "_prefetch_factor", None)
    return {
        "workers": workers if isinstance(workers, int) else None,
        "pin_memory": getattr(loader, "_pin_memory", None) is True,
        "persistent": getattr(loader, "_persistent_workers", None) is True,
        "prefetch_factor": factor if isinstance(factor, int) else None,
        "batch_size": declared_batch_size(loader),
        "fetch_ns": [],
        "fetch_cpu_ns": 0,
    }
