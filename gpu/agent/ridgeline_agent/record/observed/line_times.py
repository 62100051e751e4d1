"""What each line takes in each of several iterations: `observed.line_times` of the manifest.

Where the timed iterations vary, more of them run under the line clock alone, which slows them by a
few hundredths. The profiled ones would not do: there are two of them, and the profiler slows
operators rather than lines.
"""

from __future__ import annotations

import os
import statistics
import threading
import types
from time import perf_counter_ns, time_ns

from ...program.sources import Sources
from ...system import process_tree
from ..line_clock import ITERATION, LINE, POP, PUSH, EventLog, line_clock

resource: types.ModuleType | None
try:
    import resource
except ImportError:
    # Windows has none.
    resource = None

# The second slowest iteration over the lower quartile, from which iterations are said to vary: of
# many, that behind the slowest eighth. One slow iteration alone is what every machine has.
_VARYING = 1.3
_FEWEST_TIMED = 4
# Fewer tell nothing of what comes now and then. More run where they are quick.
_FEWEST_ITERATIONS = 8
_MOST_ITERATIONS = 24
_ENOUGH_NS = 1_000_000_000
_MOST_NS = 10_000_000_000
_MOST_LINES = 64
# Where the program's threads have waited for a processor for more of the time than this, all of
# them together, other programs make its iterations unequal, and which line that hits is chance.
_MOST_WAITING = 0.3
# What a page takes that is given back and given again: 2.2 to 4.3 µs, measured on an EPYC. Where
# that explains half of what slow iterations take longer, it is the allocator's and no line's work,
# of which there were 20 µs a page and more.
_NS_PER_PAGE = 4_000

Line = tuple[int, int]


def iterations_to_look_at(timed_ns: list[int], seconds_left: float | None) -> int:
    """How many more iterations should run, 0 where these do not vary or would take too long."""
    if len(timed_ns) < _FEWEST_TIMED:
        return 0
    low = statistics.quantiles(timed_ns, n=4, method="inclusive")[0]
    if low <= 0 or sorted(timed_ns)[-max(2, len(timed_ns) // 8)] < _VARYING * low:
        return 0
    room = _MOST_NS if seconds_left is None else min(_MOST_NS, seconds_left * 1e9 / 4)
    mean = statistics.fmean(timed_ns)
    if _FEWEST_ITERATIONS * mean > room:
        return 0
    return max(_FEWEST_ITERATIONS, min(_MOST_ITERATIONS, int(_ENOUGH_NS / mean)))


class LineTimes:
    """Runs the line clock with a log of its own."""

    def __init__(self, sources: Sources, wanted: int, most_events: int) -> None:
        self._sources = sources
        self._wanted = wanted
        self._log = EventLog(most_events)
        self._clock = line_clock(self._log, sources)
        self._done = 0
        self._thread = 0
        self._began_ns = 0
        self._waited_before_ns: int | None = None
        # Whether iterations may vary for a reason that is no line's.
        self.is_disturbed = False
        # When each iteration ended, and how many pages the process had been given by then.
        self._ends: list[tuple[int, int]] = []

    def start(self) -> None:
        """Call it between two iterations, on the thread that trains."""
        self._thread = threading.get_ident()
        self._waited_before_ns = _waited_ns()
        self._began_ns = perf_counter_ns()
        self._log.add(ITERATION, 0)
        self._ends = [(self._began_ns, _pages_given())]
        self._clock.start()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them. The time is that of `perf_counter_ns`."""
        self._done += 1
        self._log.add(ITERATION, self._done)
        self._ends.append((now_ns, _pages_given()))
        if self._done < self._wanted:
            return False
        before, now = self._waited_before_ns, _waited_ns()
        if before is not None and now is not None:
            took_ns = perf_counter_ns() - self._began_ns
            self.is_disturbed = now - before > _MOST_WAITING * took_ns
        self.is_disturbed |= are_pages(self._ends)
        return True

    def stop(self) -> None:
        """Logs no more."""
        self._clock.stop()

    def json(self) -> list[dict[str, object]]:
        """`observed.line_times` of the manifest."""
        if self._done < _FEWEST_ITERATIONS or self._log.dropped:
            return []
        thread = self._log.threads[self._thread] >> 16
        codes = self._sources.codes_json()
        by_line: dict[Line, list[int]] = {}
        for iteration, times in enumerate(exclusive_times(self._log, thread)[: self._done]):
            for (code, line), took in times.items():
                at = (int(str(codes[code]["file"])), line)
                by_line.setdefault(at, [0] * self._done)[iteration] += took
        # The slowest time tells both a line that costs much and one that does so now and then.
        slowest = sorted(by_line, key=lambda at: (-max(by_line[at]), at))[:_MOST_LINES]
        return [{"at": {"file": at[0], "line": at[1]}, "ns": by_line[at]} for at in slowest]


def _pages_given() -> int:
    """How many pages the system has given this process; always 0 where it does not tell."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def are_pages(ends: list[tuple[int, int]]) -> bool:
    """Whether slow iterations are slow for the pages that they were given. Each end has a time in
    nanoseconds, and how many pages had been given by then.
    """
    pairs = zip(ends, ends[1:])
    iterations = sorted((end[0] - begin[0], end[1] - begin[1]) for begin, end in pairs)
    quarter = len(iterations) // 4
    if quarter == 0:
        return False
    slow, quick = iterations[-quarter:], iterations[:quarter]
    longer_ns = sum(took for took, _ in slow) - sum(took for took, _ in quick)
    more_pages = sum(pages for _, pages in slow) - sum(pages for _, pages in quick)
    return more_pages * _NS_PER_PAGE >= longer_ns / 2 > 0


def _waited_ns() -> int | None:
    """How long the program's threads, and the processes below it, have waited for a processor."""
    if not process_tree.ON_LINUX:
        return None
    own = os.getpid()
    return process_tree.waited_ns([own, *process_tree.descendants(own)])


def exclusive_times(log: EventLog, thread: int) -> list[dict[Line, int]]:
    """Nanoseconds on each `(code, line)` of a thread, by iteration.

    The time between two records belongs to the line on top of the stack. Iterations lie between the
    records that say so.
    """
    iterations: list[dict[Line, int]] = []
    stack: list[Line] = []
    times: dict[Line, int] | None = None
    before = 0
    for now, kind, at, code, line in timed_records(log):
        if at != thread:
            continue
        if times is not None and stack:
            times[stack[-1]] = times.get(stack[-1], 0) + max(0, now - before)
        before = now
        if kind == ITERATION:
            times = {}
            iterations.append(times)
        elif kind == PUSH:
            stack.append((code, line))
        elif kind == LINE:
            # A function whose entry was not seen stands alone.
            if stack and stack[-1][0] == code:
                stack.pop()
            stack.append((code, line))
        elif kind == POP:
            while stack and stack.pop()[0] != code:
                pass
    return iterations


def timed_records(log: EventLog) -> list[tuple[int, int, int, int, int]]:
    """`(time, kind, thread, a, b)` of all records."""
    words = log.words
    records = log.records(0, log.position())
    return [(words[3 * at], *record) for at, record in enumerate(records)]


def seconds_left(limit: float | None, began_ns: int) -> float | None:
    """What is left of a run's time limit."""
    return None if limit is None else max(0.0, limit - (time_ns() - began_ns) / 1e9)
