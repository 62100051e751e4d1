"""Makes the ranks of a launched run start measuring at the same moment and run equally many
iterations.

Starting the profiler takes longer in some processes, and the faster rank would wait for the slower
one within the first measured collective: a wait that the program does not have. And if one rank
ended early, the others would wait for it for ever. The ranks meet in the store of torch's process
group: it wakes them within a millisecond, and it is not a collective, so the order of the program's
own collectives does not change.
"""

from __future__ import annotations

import collections
import sys
from datetime import timedelta
from typing import Any

# A rank that is this late is not on its way to the same iteration.
MEETING_TIMEOUT_SECONDS = 10.0
# Key that counts the ranks that have stopped waiting.
_ALONE = "ridgeline/alone"


class Alignment:
    """Synchronization points, counted by purpose. Every rank reaches the same ones, because all of
    them count the same iterations.
    """

    def __init__(self, is_rank: bool) -> None:
        self._is_on = is_rank
        self._counts: collections.Counter[str] = collections.Counter()
        # Whether the other ranks did not arrive.
        self._is_alone = False

    def total(self, what: str, number: int) -> int:
        """Returns the sum of the numbers of all ranks, or `number` if this is the only rank.

        Waits for the other ranks. Raises an exception if they do not arrive, or if one of them has
        stopped waiting before, because that one will not arrive any more. After that, this rank
        does not wait any more either, and the result is 0.
        """
        if self._is_alone:
            return 0
        distributed: Any = sys.modules.get("torch.distributed")
        if not self._is_on or distributed is None:
            return number
        if not distributed.is_available() or not distributed.is_initialized():
            return number
        self._is_alone = True
        store = distributed.distributed_c10d._get_default_store()
        if store.add(_ALONE, 0) > 0:
            raise RuntimeError("one continued without the others")
        self._counts[what] += 1
        key = f"ridgeline/{what}/{self._counts[what]}"
        store.add(key + "/total", number)
        if store.add(key, 1) == distributed.get_world_size():
            store.set(key + "/all", b"1")
        try:
            store.wait([key + "/all"], timedelta(seconds=MEETING_TIMEOUT_SECONDS))
        except Exception:
            store.add(_ALONE, 1)
            raise
        self._is_alone = False
        return int(store.add(key + "/total", 0))
