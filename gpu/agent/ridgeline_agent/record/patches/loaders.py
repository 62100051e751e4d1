"""How the program loads its data, and how long its main thread waits for it.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Mapping
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch
from torch.utils import data

from ...patches.module_construction import is_own_init
from ...patches.replacements import replace
from ...program.batch import declared_batch_size
from ...program.sources import Sources
from .worker_loads import WorkerLoads

_MAX_LOADERS = 16
_MAX_FETCHES = 10_000
_MAX_PASSES = 1000
_MAX_SHAPES = 1000
# Limits of the parts of a batch that are inspected.
_MAX_PARTS = 32
_MAX_PART_DEPTH = 3

Place = tuple[int, int]


class _Passes:
    """The program's passes through the loaders of one data set."""

    def __init__(self, dataset: object, place: Place | None) -> None:
        # Kept alive, so that its ID is not reused.
        self.dataset = dataset
        self.place = place
        self.count = 0
        self.began_ns: int | None = None
        self.first_batch_ns: list[int] = []
        self.end_ns: list[int] = []
        self.shapes: set[tuple[int, ...] | None] = set()


class LoaderTimes:
    """One entry per data set, in the order of their first use."""

    def __init__(self, sources: Sources | None = None) -> None:
        self._sources = sources
        # By object ID of the data set, which is kept alive so that its ID is not reused.
        self._entries: dict[int, tuple[object, dict[str, Any]]] = {}
        self._passes: dict[int, _Passes] = {}
        # By object ID of the loader.
        self._created: dict[int, tuple[weakref.ref[Any], Place | None]] = {}
        self._worker_loads = WorkerLoads()
        self._began_ns = 0
        self._took_ns = 0
        # The same for the thread's CPU time.
        self._began_cpu_ns = 0
        self._took_cpu_ns = 0

    def install(self) -> None:
        """Hooks the creation of loaders, and the beginning of passes through them."""
        loader: Any = data.DataLoader
        original_init, original_iter = loader.__init__, loader.__iter__

        @functools.wraps(original_init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original_init(self, *args, **kwargs)
            with contextlib.suppress(Exception):
                created(self)

        @functools.wraps(original_iter)
        def __iter__(self: Any) -> Any:
            began_ns = perf_counter_ns()
            iterator = original_iter(self)
            with contextlib.suppress(Exception):
                pass_began(self, iterator, began_ns)
            return iterator

        created, pass_began = self.created, self.pass_began
        replace(loader, "__init__", __init__)
        replace(loader, "__iter__", __iter__)
        # The loading classes are private to torch.
        with contextlib.suppress(AttributeError):
            self._worker_loads.install()

    def created(self, loader: Any) -> None:
        """A loader was created."""
        self._worker_loads.created(loader)
        if self._sources is None or len(self._created) >= _MAX_PASSES:
            return
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and is_own_init(frame, loader):
            frame = frame.f_back
        self._created[id(loader)] = (weakref.ref(loader), self._sources.innermost(frame))

    def pass_began(self, loader: Any, iterator: Any, began_ns: int) -> None:
        """The program began a pass through a loader at `began_ns` of `perf_counter_ns`."""
        dataset = getattr(iterator, "_dataset", None)
        passes = self._passes.get(id(dataset))
        if passes is None:
            if len(self._passes) >= _MAX_LOADERS:
                return
            reference, place = self._created.get(id(loader), (None, None))
            known = reference is not None and reference() is loader
            passes = self._passes[id(dataset)] = _Passes(dataset, place if known else None)
        passes.count += 1
        passes.began_ns = began_ns

    def begins(self) -> None:
        """A batch is requested from a loader."""
        self._began_ns = perf_counter_ns()
        self._began_cpu_ns = thread_time_ns()

    def ends(self) -> None:
        """The loader returned a batch, or had none left."""
        self._took_cpu_ns = thread_time_ns() - self._began_cpu_ns
        self._took_ns = perf_counter_ns() - self._began_ns

    def loaded(self, loader: Any, timed: bool, batch: object = None) -> None:
        """The batch is from this loader; `timed` if the iteration is timed without a profiler."""
        dataset = getattr(loader, "_dataset", None)
        known = self._entries.get(id(dataset))
        if known is None:
            if len(self._entries) >= _MAX_LOADERS:
                return
            known = self._entries[id(dataset)] = (dataset, _described(loader))
        fetches = known[1]["fetch_ns"]
        if timed and len(fetches) < _MAX_FETCHES:
            fetches.append(self._took_ns)
            known[1]["fetch_cpu_ns"] += self._took_cpu_ns
        passes = self._passes.get(id(dataset))
        if passes is not None:
            if passes.began_ns is not None and len(passes.first_batch_ns) < _MAX_PASSES:
                passes.first_batch_ns.append(perf_counter_ns() - passes.began_ns)
            passes.began_ns = None
            if len(passes.shapes) < _MAX_SHAPES:
                passes.shapes.add(_shape(batch))

    def ran_out(self, loader: Any) -> None:
        """The loader has no more batches. Workers that are not persistent end in that time."""
        passes = self._passes.get(id(getattr(loader, "_dataset", None)))
        if passes is not None and len(passes.end_ns) < _MAX_PASSES:
            passes.end_ns.append(perf_counter_ns() - self._began_ns)

    def forget_times(self) -> None:
        """Discards the times, because the timing restarts."""
        for _, entry in self._entries.values():
            entry["fetch_ns"].clear()
            entry["fetch_cpu_ns"] = 0

    def json(self) -> list[dict[str, Any]]:
        """Returns `loaders` for the manifest."""
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
    """Returns the shape of the largest of a batch's first tensors. Labels may have any shape.

    Cheap, because it runs for each batch of the timed iterations.
    """
    if isinstance(batch, torch.Tensor):
        return tuple(batch.shape)
    largest, shape = -1, None
    pending: list[tuple[Any, int]] = [(batch, 0)]
    for part, depth in pending:
        if isinstance(part, torch.Tensor):
            if part.numel() > largest:
                largest, shape = part.numel(), tuple(part.shape)
        elif depth < _MAX_PART_DEPTH and len(pending) < _MAX_PARTS:
            parts: Any = ()
            if isinstance(part, (list, tuple)):
                parts = part[:_MAX_PARTS]
            elif isinstance(part, Mapping):
                parts = list(part.values())[:_MAX_PARTS]
            pending.extend((one, depth + 1) for one in parts)
    return shape


def _described(loader: Any) -> dict[str, Any]:
    """Returns the loader's settings. `loader` is its iterator, which has copies of them."""
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
