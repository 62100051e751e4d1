"""Profiles whole periods, if some iterations are slow at regular intervals.

Two profiled iterations are usually both fast ones. Over whole periods, each line has its share of
the mean: an evaluation in every tenth step as well as the step. Without a known period, a slow one
that happened to be profiled is replaced.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ...iterations.rhythm import Rhythm

# Time limit for all of them without a profiler, which makes them several times slower.
_MAX_NS = 3_000_000_000
_MAX_ITERATIONS = 64
# Minimum ratio of a slow profiled iteration to the others that were profiled. The first of them is
# the slowest of equal ones, because its caches are cold.
_SLOW_RATIO = 2.0


def whole_periods(
    period: int, minimum: int, times_ns: Sequence[int], seconds_left: float | None
) -> int:
    """Returns how many iterations to profile: a multiple of `period` with at least `least`
    iterations if they fit the limits, or else one period; 0 if one period takes too long.
    """
    room_ns = _MAX_NS if seconds_left is None else min(_MAX_NS, seconds_left * 1e9 / 8)
    room = min(_MAX_ITERATIONS, int(room_ns / max(statistics.fmean(times_ns), 1.0)))
    wanted = period * -(-minimum // period)
    return wanted if wanted <= room else period if period <= room else 0


def iterations_to_wait(found: Rhythm, following: int, watched: int) -> int:
    """Returns how many iterations to skip, so that memory is observed in fast ones. `following` is
    the position of the next iteration; `watched` is the number of iterations at the beginning whose
    memory is observed. The final memory result is that of the last of those.
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


def is_slow_one(
    profiled_ns: Sequence[int], timed_ns: Sequence[int], seconds_left: float | None
) -> bool:
    """Whether the last profiled iteration, which represents all of them, is a slow one that should
    be replaced: the others are much faster, and the time limit allows it.
    """
    if len(profiled_ns) < 2 or not timed_ns:
        return False
    *others, last = profiled_ns
    is_slow = last >= _SLOW_RATIO * max(max(others), statistics.median(timed_ns))
    return is_slow and (seconds_left is None or sum(profiled_ns) <= seconds_left * 1e9 / 4)


class WholePeriods:
    """Counts the iterations that are profiled again.

    Args:
        iterations: Their number.
        wait: The number of iterations to skip before them.
        begins: Called before each one.
        ended: Called after each one, with whether it was the last.
        abandon: Called if the program ends before the last.
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
        """Returns whether it was the last one."""
        self._done += 1
        last = self._done >= self._iterations
        if self._done > 0:
            self._ended(last)
        if self._done >= 0 and not last:
            self._begins()
        return last

    def stop(self) -> None:
        """The program has ended, or that was the last iteration."""
        if 0 <= self._done < self._iterations:
            self._abandon()
