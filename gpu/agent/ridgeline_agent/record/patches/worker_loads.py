"""The time that a loader's workers take per batch, which the program's main process cannot see.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import mmap
import struct
from time import perf_counter_ns
from typing import Any

from torch.utils import data
from torch.utils.data import _utils

from ...patches.replacements import replace

_MAX_DATASETS = 16
# A worker's slot has its number of loaded batches and their total nanoseconds.
_SLOT = struct.Struct("=QQ")
_MAX_WORKERS = 256


class WorkerLoads:
    """Shares memory with forked workers: each sums up in its own slot. Workers that are spawned
    have no access to it, and their times stay unknown.
    """

    def __init__(self) -> None:
        # By object ID of the data set, which is the same in a forked process. Kept alive, so that
        # the ID is not reused.
        self._shared: dict[int, tuple[object, mmap.mmap]] = {}

    def install(self) -> None:
        """From now on, times the batches that workers load."""
        fetch: Any = _utils.fetch
        self._time(fetch._MapDatasetFetcher)
        self._time(fetch._IterableDatasetFetcher)

    def created(self, loader: Any) -> None:
        """A loader was created. Its workers start later."""
        dataset, workers = loader.dataset, loader.num_workers
        if workers > 0 and id(dataset) not in self._shared and len(self._shared) < _MAX_DATASETS:
            shared = mmap.mmap(-1, _MAX_WORKERS * _SLOT.size)
            self._shared[id(dataset)] = (dataset, shared)

    def batch_ns(self, dataset: object) -> int | None:
        """Returns nanoseconds per batch, averaged over all workers, without each worker's first
        batch.
        """
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
            if known is None or not 0 <= worker.id < _MAX_WORKERS:
                return original(self, index)
            began_ns = perf_counter_ns()
            batch = original(self, index)
            took_ns = perf_counter_ns() - began_ns
            # The first batch still uses memory pages that were shared with the parent.
            if getattr(self, "_has_loaded", False):
                at = worker.id * _SLOT.size
                batches, before_ns = _SLOT.unpack_from(known[1], at)
                _SLOT.pack_into(known[1], at, batches + 1, before_ns + took_ns)
            self._has_loaded = True
            return batch

        replace(fetcher, "fetch", fetch)
