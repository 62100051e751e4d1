"""How the program loads its data, and how long its own thread waits for it."""

from __future__ import annotations

import time
from typing import Any

from .loader_batches import declared_batch_size

_MOST_LOADERS = 16
_MOST_FETCHES = 10_000


class LoaderTimes:
    """One entry for each data set, in the order in which they were first loaded from."""

    def __init__(self) -> None:
        # By the identity of the data set, which is kept so that the identity stays its own.
        self._entries: dict[int, tuple[object, dict[str, Any]]] = {}
        self._began_ns = 0
        self._took_ns = 0

    def begins(self) -> None:
        """A loader is asked for a batch."""
        self._began_ns = time.perf_counter_ns()

    def ends(self) -> None:
        """It gave one, or had none left."""
        self._took_ns = time.perf_counter_ns() - self._began_ns

    def loaded(self, loader: Any, timed: bool) -> None:
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

    def forget_times(self) -> None:
        """What was timed counts for nothing: the timing begins anew."""
        for _, entry in self._entries.values():
            entry["fetch_ns"].clear()

    def json(self) -> list[dict[str, Any]]:
        """`loaders` of the manifest."""
        return [entry for _, entry in self._entries.values()]


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
    }
