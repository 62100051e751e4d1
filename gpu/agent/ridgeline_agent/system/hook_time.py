"""The time that the agent's hooks take within an iteration.

A hook takes microseconds, and a small iteration calls a dozen of them, which can be a third of its
time.
"""

from __future__ import annotations

from _thread import get_ident
from time import perf_counter_ns


class HookTime:
    """Adds up the time in hooks on the thread whose iterations are timed. All times are those of
    `perf_counter_ns`.
    """

    def __init__(self) -> None:
        # When the latest hook began, in any thread.
        self.began_ns = 0
        self._thread = 0
        self._total_ns = 0
        # What came before is not counted, or was counted already.
        self._since_ns = 0

    def iteration_begins(self, now_ns: int) -> None:
        """An iteration begins on this thread, within a hook."""
        self._thread = get_ident()
        self._total_ns = 0
        self._since_ns = now_ns

    def ran(self, began_ns: int) -> None:
        """A hook that began at `began_ns` has ended."""
        if get_ident() == self._thread:
            now_ns = perf_counter_ns()
            self._total_ns += self._uncounted_ns(began_ns, now_ns)
            self._since_ns = now_ns

    def until(self, now_ns: int) -> int:
        """Returns the time since the iteration began, for an iteration that ends within a hook."""
        return self._total_ns + self._uncounted_ns(self.began_ns, now_ns)

    def _uncounted_ns(self, began_ns: int, now_ns: int) -> int:
        since_ns = self._since_ns
        return now_ns - (began_ns if began_ns > since_ns else since_ns)
