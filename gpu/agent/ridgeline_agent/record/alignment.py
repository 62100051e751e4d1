"""Lets the ranks of a launched run begin to measure at the same moment, and run as many iterations.

Starting the profiler takes longer in one process than in another, and the faster rank would wait
for the slower one within the first exchange that is measured: a wait that the program does not
have. And a rank that ends while another goes on would have that one wait for ever. The ranks meet
in the store of torch's process group: it wakes them within a millisecond, and it is no collective,
so nothing gets out of order in the program's own.
"""

from __future__ import annotations

import collections
import sys
from datetime import timedelta
from typing import Any

# A rank that is this far behind is not on its way to the same iteration.
MEETING_TIMEOUT_SECONDS = 10.0
# What a rank adds to that waits no more.
_ALONE = "ridgeline/alone"


class Alignment:
    """Meeting points, counted by what the ranks meet for. Every rank comes to the same ones,
    because all of them count the same iterations.
    """

    def __init__(self, is_rank: bool) -> None:
        self._is_on = is_rank
        self._met: collections.Counter[str] = collections.Counter()
        # Whether the others did not come.
        self._is_alone = False

    def total(self, what: str, number: int) -> int:
        """The sum of what each rank gives here; what this one gives where there is no other.

        Waits until the other ranks are here, too. Raises where they do not come, and where one of
        them has given up waiting before, because it comes to no meeting any more. From then on this
        one waits no more either, and is 0.
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
        self._met[what] += 1
        key = f"ridgeline/{what}/{self._met[what]}"
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
