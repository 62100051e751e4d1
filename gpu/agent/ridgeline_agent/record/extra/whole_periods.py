"""Profiles whole periods, where some iterations are slow at regular intervals.

Two profiled iterations are both of the quick kind, mostly. Over whole periods, each line has its
share of the mean: an evaluation every tenth step as well as the step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ...iterations.rhythm import Rhythm

# Together, without a profiler: that makes them several times slower.
_MOST_NS = 3_000_000_000
_MOST_ITERATIONS = 64


def whole_periods(
    period: int, least: int, times_ns: Sequence[int], seconds_left: float | None
) -> int:
    """How many iterations to profile: a multiple of `period`, `least` of them or more where those
    take no longer than one period may; 0 where one period takes too long.
    """
    room_ns = _MOST_NS if seconds_left is None else min(_MOST_NS, seconds_left * 1e9 / 8)
    room = min(_MOST_ITERATIONS, int(room_ns / max(statistics.fmean(times_ns), 1.0)))
    wanted = period * -(-least // period)
    return wanted if wanted <= room else period if period <= room else 0


def iterations_to_wait(found: Rhythm, following: int, watched: int) -> int:
    """How many iterations to leave out, so that memory is watched in quick ones. `following` is the
    position of the next iteration, and `watched` in how many of the first ones memory is watched;
    what is known of memory in the end is that of the last of those.
    """
    period = found.period or 1
    first = 0 if watched < period else watched - 1
    if period == 1:
        return 0
    is_quick = (
        all((following + wait + at) % period != found.place for at in range(first, watched))
        for wait in range(period)
    )
    return next((wait for wait, quick in enumerate(is_quick) if quick), 0)


class WholePeriods:
    """Counts the iterations that are profiled again.

    Args:
        iterations: How many.
        wait: How many are left out before them.
        begins: Called before each.
        ended: Called behind each, with whether it was the last.
        abandon: Called where the program ends before the last.
    """

    def __init__(
        self,
        iterations: int,
        wait: int,
        begins: Callable[[], None],
        ended: Callable[[bool], None],
        abandon: Callable[[], None],
    ) -> None:
        self._iterations = iterations
        self._done = -wait
        self._begins = begins
        self._ended = ended
        self._abandon = abandon
        if wait == 0:
            begins()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them."""
        self._done += 1
        last = self._done >= self._iterations
        if self._done > 0:
            self._ended(last)
        if self._done >= 0 and not last:
            self._begins()
        return last

    def stop(self) -> None:
        """The program has ended, or it was the last."""
        if 0 <= self._done < self._iterations:
            self._abandon()
