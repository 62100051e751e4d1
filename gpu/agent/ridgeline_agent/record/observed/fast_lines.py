"""The time of fast lines, without recording each of their executions: `observed.fast_lines` of the
manifest.

Recording a line takes 10 to 50 times as long as `i += 1`. If recording such lines takes a relevant
part of an iteration, a few more iterations run in which only the first execution of each of them is
recorded, and no operators. The time of the others then belongs to the line that was recorded before
them. So these iterations have the time of groups of lines, not of each.
"""

from __future__ import annotations

import collections
import itertools
import operator
import statistics
import sys
import threading
import types
from typing import Any, NamedTuple

from ...program.sources import Sources
from ..line_clock import ITERATION, LINE, PUSH, STARTED, EventLog, MonitoringClock, event_ns
from .line_times import Line, apply_record, exclusive_times, files_of_codes, fits, timed_records

# The minimum number of executions in an iteration.
_MIN_COUNT = 20
# The minimum share of an iteration that recording a line takes, or the calls of a function.
_MIN_SHARE = 0.005
# The same for all of them together.
_MIN_TOTAL_SHARE = 0.1
# The maximum ratio of the time from a record to the next to the recording of it.
_MAX_RATIO = 4
# Longer times from a record to the next count as this, as a multiple of the same.
_MAX_GAP = 40
# The number of lines of a function that is not recorded, if all of them are that fast.
_LINES_PER_CALL = 4
_ITERATIONS = 3
_MAX_GROUPS = 64
# Reading a million records takes two seconds.
_MAX_RECORDS = 1_000_000


class _Fast(NamedTuple):
    """What is not recorded."""

    # `(code, line)`, of which only the first execution is recorded.
    lines: frozenset[Line]
    # Functions of which nothing is recorded.
    codes: frozenset[int]


class FastLines:
    """Runs the line clock with a separate log, without the fast lines."""

    def __init__(
        self, sources: Sources, fast: _Fast, groups: list[frozenset[Line]], max_events: int
    ) -> None:
        self._sources = sources
        self._groups = groups
        self._log = EventLog(max_events)
        self._clock = _ClockWithoutFastLines(self._log, sources, fast)
        self._done = 0
        self._thread = 0

    def start(self) -> None:
        """Starts the clock. Call it between two iterations, on the training thread."""
        self._thread = threading.get_ident()
        self._clock.start()
        self._log.add(ITERATION, 0)

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one."""
        self._done += 1
        self._log.add(ITERATION, self._done)
        if self._done >= _ITERATIONS:
            return True
        self._clock.record_first_again()
        return False

    def stop(self) -> None:
        """Stops logging."""
        self._clock.stop()

    def json(self) -> list[dict[str, object]]:
        """Returns `observed.fast_lines` for the manifest."""
        if self._done == 0 or self._log.dropped:
            return []
        ends = [now for now, kind, *_ in timed_records(self._log) if kind == ITERATION]
        times = exclusive_times(self._log, self._log.threads[self._thread] >> 16)
        files = files_of_codes(self._sources)
        shares: list[list[float]] = [[] for _ in self._groups]
        for (begin, end), by_code in zip(zip(ends, ends[1:]), times):
            by_line: collections.Counter[Line] = collections.Counter()
            for (code, line), took in by_code.items():
                by_line[files[code], line] += took
            for share, group in zip(shares, self._groups):
                share.append(sum(by_line[line] for line in group) / max(1, end - begin))
        found = sorted(zip(map(statistics.median, shares), map(sorted, self._groups)), reverse=True)
        return [
            {"at": [{"file": file, "line": line} for file, line in group], "share": share}
            for share, group in found[:_MAX_GROUPS]
        ]


def fast_lines(
    profiled: EventLog,
    sources: Sources,
    timed_ns: list[int],
    seconds_left: float | None,
    max_events: int,
) -> FastLines | None:
    """Returns the fast lines among those of the profiled iterations. None if their recording takes
    no relevant part of an iteration, or this Python cannot leave them out.
    """
    thread = profiled.threads.get(threading.get_ident())
    if not hasattr(sys, "monitoring") or not timed_ns or thread is None or profiled.dropped:
        return None
    iteration_ns = statistics.median(timed_ns)
    first, last = _first_iteration(profiled)
    if not 0 < last - first <= _MAX_RECORDS or not fits(_ITERATIONS * iteration_ns, seconds_left):
        return None
    fast = _fast(profiled, first, last, iteration_ns, max(1, event_ns(sources)))
    if fast is None:
        return None
    groups = _groups(profiled, first, last, thread >> 16, fast, sources)
    return FastLines(sources, fast, groups, max_events)


def _first_iteration(log: EventLog) -> tuple[int, int]:
    """Returns the positions of the first and after the last record of the first profiled iteration,
    including the stack before it.
    """
    words = log.words[1::3]
    marks = [at for at, word in enumerate(words) if word & 0xFF in (STARTED, ITERATION)]
    for begin, start, end in zip(marks, marks[1:], marks[2:]):
        if [words[at] & 0xFF for at in (begin, start, end)] == [STARTED, ITERATION, ITERATION]:
            return begin, end
    return 0, 0


def _fast(log: EventLog, first: int, last: int, iteration_ns: float, cost_ns: int) -> _Fast | None:
    """Returns what takes little more time than recording it, and is recorded so often that this
    takes a relevant part of an iteration. `cost_ns` is the time of an event.
    """
    begin, end = 3 * first, 3 * last
    times, words, lines = (log.words[at:end:3] for at in range(begin, begin + 3))
    counts: collections.Counter[Line] = collections.Counter(zip(words, lines))
    # From the record to the next one, mostly without the time in which another program had the CPU.
    took: collections.Counter[Line] = collections.Counter()
    gaps = map(min, map(operator.sub, times[1:], times), itertools.repeat(_MAX_GAP * cost_ns))
    for key, ns in zip(zip(words, lines), gaps):
        took[key] += ns
    of_lines: dict[Line, list[int]] = {}
    of_codes: dict[int, list[int]] = {}
    for (word, line), count in counts.items():
        kind, code, ns = word & 0xFF, word >> 32, took[word, line]
        if kind == LINE:
            _add(of_lines.setdefault((code, line), [0, 0]), count, ns)
            _add(of_codes.setdefault(code, [0, 0]), 0, ns)
        elif kind == PUSH:
            _add(of_codes.setdefault(code, [0, 0]), count, ns)
    minimum = max(_MIN_COUNT, _MIN_SHARE * iteration_ns / cost_ns)

    def is_fast(sums: list[int], records: int) -> bool:
        count, ns = sums
        return count >= minimum and ns <= count * records * _MAX_RATIO * cost_ns

    codes = frozenset(code for code, sums in of_codes.items() if is_fast(sums, _LINES_PER_CALL))
    fast = _Fast(frozenset(at for at, sums in of_lines.items() if is_fast(sums, 1)), codes)
    total = sum(of_lines[at][0] for at in fast.lines) + sum(2 * of_codes[code][0] for code in codes)
    return fast if total * cost_ns >= _MIN_TOTAL_SHARE * iteration_ns else None


def _add(sums: list[int], count: int, ns: int) -> None:
    sums[0] += count
    sums[1] += ns


def _groups(
    log: EventLog, first: int, last: int, thread: int, fast: _Fast, sources: Sources
) -> list[frozenset[Line]]:
    """Returns the sets of `(file, line)` whose time is only known together: lines, and those that
    are recorded before them.
    """
    pairs: set[tuple[Line, Line]] = set()
    every: list[Line] = []
    recorded: list[Line] = []
    seen: set[Line] = set()
    words = log.words
    begin, end = 3 * first, 3 * last
    for word, line in zip(words[begin + 1 : end : 3], words[begin + 2 : end : 3]):
        if word >> 16 & 0xFFFF != thread:
            continue
        if every and recorded:
            pairs.add((every[-1], recorded[-1]))
        kind, code = word & 0xFF, word >> 32
        if kind == ITERATION:
            seen.clear()
            continue
        apply_record(every, kind, code, line)
        at = (code, line)
        is_recorded = code not in fast.codes
        if kind == LINE and at in fast.lines:
            is_recorded &= at not in seen
            seen.add(at)
        if is_recorded:
            apply_record(recorded, kind, code, line)

    files = files_of_codes(sources)

    def in_file(at: Line) -> Line:
        return files[at[0]], at[1]

    groups: dict[Line, set[Line]] = {}
    for pair in pairs:
        one, other = (groups.setdefault(line, {line}) for line in map(in_file, pair))
        if one is not other:
            one |= other
            groups.update(dict.fromkeys(other, one))
    left_out = {in_file(at) for at, _ in pairs if at in fast.lines or at[0] in fast.codes}
    unique = {id(group): group for group in groups.values()}.values()
    return [frozenset(group) for group in unique if group & left_out]


class _ClockWithoutFastLines(MonitoringClock):
    """A line clock without the fast lines."""

    def __init__(self, log: EventLog, sources: Sources, fast: _Fast) -> None:
        super().__init__(log, sources, None)
        self._fast = fast

    def record_first_again(self) -> None:
        """Call it after each iteration, to record the first execution in the next one."""
        sys.monitoring.restart_events()  # type: ignore[attr-defined,unused-ignore]

    def _follow(self, code: types.CodeType) -> int | None:
        if self.sources.code(code) in self._fast.codes:
            return None
        return super()._follow(code)

    def _callbacks(self, monitoring: Any) -> tuple[Any, ...]:
        on_line, *others = super()._callbacks(monitoring)
        words, fast, disable = self._words, self._fast.lines, monitoring.DISABLE

        def on_line_once(code: types.CodeType, line: int) -> object:
            result = on_line(code, line)
            word = words.get(id(code))
            return result if word is None or (word >> 32, line) not in fast else disable

        return (on_line_once, *others)
