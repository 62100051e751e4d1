"""How long a loader's workers take for a batch, which the program's own process cannot see.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import mmap
import struct
import time
from typing import Any

from torch.utils import data
from torch.utils.data import _utils

_MOST_DATASETS = 16
# A worker's slot has how many batches it loaded and the nanoseconds of all.
_SLOT = struct.Struct("=QQ")
_MOST_WORKERS = 256


class WorkerLoads:
    """Shares memory with workers that are forked: each adds up in a slot of its own. Those that are
    started otherwise know nothing of it, and what they take stays unknown.
    """

    def __init__(self) -> None:
        # By the identity of the data set, which is the same in a forked process; kept, so that it
        # stays its own.
        self._shared: dict[int, tuple[object, mmap.mmap]] = {}

    def install(self) -> None:
        """Times what workers load from now on."""
        fetch: Any = _utils.fetch
        self._time(fetch._MapDatasetFetcher)
        self._time(fetch._IterableDatasetFetcher)

    def made(self, loader: Any) -> None:
        """A loader was made, whose workers start later."""
        dataset, workers = loader.dataset, loader.num_workers
        if workers > 0 and id(dataset) not in self._shared and len(self._shared) < _MOST_DATASETS:
            shared = mmap.mmap(-1, _MOST_WORKERS * _SLOT.size)
            self._shared[id(dataset)] = (dataset, shared)

    def batch_ns(self, dataset: object) -> int | None:
        """Nanoseconds of a batch, the mean of all workers; a worker's first is not counted."""
        known = self._shared.get(id(dataset))
        if known is None:
            return None
        slots = [_SLOT.unpack_from(known[1], at) for at in range(0, len(known[1]), _SLOT.size)]
        batches, took_ns = (sum(column) for column in zip(*slots))
        return took_ns // batches if batches else None

    def _time(self, fetcher: Any) -> None:
        original = fetcher.fetch
        shared = self._shared

        @functools.wraps(original)
        def fetch(self: Any, index: Any) -> Any:
            worker: Any = data.get_worker_info()
            known = shared.get(id(self.dataset)) if worker is not None else None
            if known is None or not 0 <= worker.id < _MOST_WORKERS:
                return original(self, index)
            began_ns = time.perf_counter_ns()
            batch = original(self, index)
            took_ns = time.perf_counter_ns() - began_ns
            # The first one finds what it reads as the process was begun with it: not yet its own.
            if getattr(self, "_has_loaded", False):
                at = worker.id * _SLOT.size
                batches, before_ns = _SLOT.unpack_from(known[1], at)
                _SLOT.pack_into(known[1], at, batches + 1, before_ns + took_ns)
            self._has_loaded = True
            return batch

        fetcher.fetch = fetch
