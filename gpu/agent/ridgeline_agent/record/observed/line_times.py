"""The time of each line in several iterations: `observed.line_times` of the manifest.

If the timed iterations vary, more of them run with only the line clock, which slows them down by a
few percent. The two profiled ones are too few, and the profiler slows operators down rather than
lines.
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
    # Not available on Windows.
    resource = None

# Minimum ratio of the second slowest iteration to the lower quartile, from which iterations count
# as varying; with many iterations, of the slowest one after the top eighth. A single slow iteration
# is normal on every machine.
_VARYING_RATIO = 1.3
_MIN_TIMED = 4
# Fewer iterations do not show occasional costs. More run if they are fast.
_MIN_ITERATIONS = 8
_MAX_ITERATIONS = 24
_ENOUGH_NS = 1_000_000_000
_MAX_NS = 10_000_000_000
_MAX_LINES = 64
# If the program's threads together waited for a CPU for more than this share of the time, other
# programs make the iterations vary, and the affected lines are random.
_MAX_WAITING_SHARE = 0.3
# Time in nanoseconds for a page that is freed and allocated again: 2.2 to 4.3 µs, measured on an
# EPYC. If that explains half of the extra time of slow iterations, it is due to the allocator and
# not a line's work, which took 20 µs per page and more.
_NS_PER_PAGE = 4_000

Line = tuple[int, int]


def iterations_to_time(timed_ns: list[int], seconds_left: float | None) -> int:
    """Returns how many more iterations should run; 0 if these do not vary or take too long."""
    if len(timed_ns) < _MIN_TIMED:
        return 0
    low = statistics.quantiles(timed_ns, n=4, method="inclusive")[0]
    if low <= 0 or sorted(timed_ns)[-max(2, len(timed_ns) // 8)] < _VARYING_RATIO * low:
        return 0
    mean = statistics.fmean(timed_ns)
    if not fits(_MIN_ITERATIONS * mean, seconds_left):
        return 0
    return max(_MIN_ITERATIONS, min(_MAX_ITERATIONS, int(_ENOUGH_NS / mean)))


def fits(took_ns: float, seconds_left: float | None) -> bool:
    """Whether there is enough time for iterations that took this long."""
    return took_ns <= (_MAX_NS if seconds_left is None else min(_MAX_NS, seconds_left * 1e9 / 4))


class LineTimes:
    """Runs the line clock with a separate log."""

    def __init__(self, sources: Sources, wanted: int, max_events: int) -> None:
        self._sources = sources
        self._wanted = wanted
        self._log = EventLog(max_events)
        self._clock = line_clock(self._log, sources)
        self._done = 0
        self._thread = 0
        self._began_ns = 0
        self._waited_before_ns: int | None = None
        # Whether iterations may vary for a reason unrelated to any line.
        self.is_disturbed = False
        # End time of each iteration, and the page faults of the process until then.
        self._ends: list[tuple[int, int]] = []

    def start(self) -> None:
        """Starts the clock. Call it between two iterations, on the training thread."""
        self._thread = threading.get_ident()
        self._waited_before_ns = _waited_ns()
        self._began_ns = perf_counter_ns()
        self._log.add(ITERATION, 0)
        self._ends = [(self._began_ns, _page_faults())]
        self._clock.start()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one. `now_ns` is a time of `perf_counter_ns`."""
        self._done += 1
        self._log.add(ITERATION, self._done)
        self._ends.append((now_ns, _page_faults()))
        if self._done < self._wanted:
            return False
        before, now = self._waited_before_ns, _waited_ns()
        if before is not None and now is not None:
            took_ns = perf_counter_ns() - self._began_ns
            self.is_disturbed = now - before > _MAX_WAITING_SHARE * took_ns
        self.is_disturbed |= are_page_faults(self._ends)
        return True

    def stop(self) -> None:
        """Stops logging."""
        self._clock.stop()

    def json(self) -> list[dict[str, object]]:
        """Returns `observed.line_times` for the manifest."""
        if self._done < _MIN_ITERATIONS or self._log.dropped:
            return []
        thread = self._log.threads[self._thread] >> 16
        files = files_of_codes(self._sources)
        by_line: dict[Line, list[int]] = {}
        for iteration, times in enumerate(exclusive_times(self._log, thread)[: self._done]):
            for (code, line), took in times.items():
                at = (files[code], line)
                by_line.setdefault(at, [0] * self._done)[iteration] += took
        # The maximum time selects both lines that always cost much and those that do occasionally.
        slowest = sorted(by_line, key=lambda at: (-max(by_line[at]), at))[:_MAX_LINES]
        return [{"at": {"file": at[0], "line": at[1]}, "ns": by_line[at]} for at in slowest]


def _page_faults() -> int:
    """Returns this process's number of minor page faults; 0 if the system does not report it."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def are_page_faults(ends: list[tuple[int, int]]) -> bool:
    """Whether page faults explain why slow iterations are slow. Each end has a time in nanoseconds,
    and the page faults until then.
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
    """Returns how long the program's threads and child processes have waited for a CPU."""
    if not process_tree.ON_LINUX:
        return None
    own = os.getpid()
    return process_tree.scheduler_wait_ns([own, *process_tree.descendants(own)])


def exclusive_times(log: EventLog, thread: int) -> list[dict[Line, int]]:
    """Returns the nanoseconds on each `(code, line)` of a thread, by iteration.

    The time between two records belongs to the line on top of the stack. Iterations are delimited
    by their own records.
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
        else:
            apply_record(stack, kind, code, line)
    return iterations


def apply_record(stack: list[Line], kind: int, code: int, line: int) -> None:
    """Applies a record to the `(code, line)` of a thread's stack, innermost last."""
    if kind == PUSH:
        stack.append((code, line))
    elif kind == LINE:
        # A function whose entry was not logged.
        if stack and stack[-1][0] == code:
            stack.pop()
        stack.append((code, line))
    elif kind == POP:
        while stack and stack.pop()[0] != code:
            pass


def files_of_codes(sources: Sources) -> list[int]:
    """Returns the file of each function."""
    return [int(str(code["file"])) for code in sources.codes_json()]


def timed_records(log: EventLog) -> list[tuple[int, int, int, int, int]]:
    """Returns `(time, kind, thread, a, b)` of all records."""
    words = log.words
    records = log.records(0, log.position())
    return [(words[3 * at], *record) for at, record in enumerate(records)]


def seconds_left(limit: float | None, began_ns: int) -> float | None:
    """Returns the rest of a run's time limit in seconds."""
    return None if limit is None else max(0.0, limit - (time_ns() - began_ns) / 1e9)
