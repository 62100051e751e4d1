"""Lines that take less time than recording them, measured together in `observed.fast_lines`."""

from __future__ import annotations

import statistics
import sys

import pytest

from observed_helpers import START, record_complete
from recording import Recording
from ridgeline_agent.record.line_clock import ITERATION, LINE, POP, PUSH, STARTED, EventLog
from ridgeline_agent.record.observed import fast_lines
from ridgeline_agent.record.observed.fast_lines import _Fast

needs_monitoring = pytest.mark.skipif(
    not hasattr(sys, "monitoring"), reason="lines can be left out since Python 3.12"
)
ITERATIONS = {"warmup": 2, "timed": 3, "timed_at_most": 3, "profiled": 2}
# Other activity on this machine does not make iterations occasionally slow.
LOOPS = """
    import dataclasses
    import time
    from ridgeline_agent.record.timing import Timer
    measured = Timer.rhythm
    Timer.rhythm = lambda self: dataclasses.replace(measured(self), slow=())
    def short(n):
        return n + 1
    def count():
        total = 0
        for i in range(30000):  # loop
            total += i  # body
        for i in range(8000):  # short loop
            total = short(total)  # short call
    while True:
        train()
        count()
        time.sleep(0.005)
"""


def groups(recording: Recording) -> dict[frozenset[int], float]:
    return {
        frozenset(at["line"] for at in group["at"]): group["share"]
        for group in recording.manifest["observed"]["fast_lines"]
    }


@needs_monitoring
def test_loops_of_fast_lines_are_measured_together() -> None:
    recording = record_complete(START + LOOPS, iterations=ITERATIONS)
    found = groups(recording)
    loop = {recording.line_of("# loop"), recording.line_of("# body")}
    (of_loop,) = (group for group in found if group & loop)
    assert of_loop == loop
    # The function is not recorded, so its time belongs to the line that calls it.
    calls = {recording.line_of("# short loop"), recording.line_of("# short call")}
    (of_calls,) = (group for group in found if group & calls)
    assert of_calls > calls
    assert recording.line_of("return n + 1") in of_calls
    # Recording them would take longer than they do.
    manifest = recording.manifest
    iteration_ns = statistics.median(manifest["iterations"]["timed_ns"])
    assert 0.0 < found[of_loop] * iteration_ns < 60000 * manifest["line_log"]["event_ns"]
    assert len(manifest["iterations"]["profiled"]) >= 2


class Codes:
    """Functions of which each is in the file with its number."""

    def codes_json(self) -> list[dict[str, object]]:
        return [{"file": file} for file in range(9)]


def log(*records: tuple[int, ...]) -> EventLog:
    """Returns a log of `(kind, code, line)`, each 10 ns before the next, or a time at their end."""
    result, now = EventLog(1000), 0
    for kind, code, line, *ns in records:
        result.extend((now, kind | code << 32, line))
        now += ns[0] if ns else 10
    return result


def test_a_line_belongs_to_what_is_recorded_before_it() -> None:
    records = log(
        (STARTED, 0, 0),
        (PUSH, 1, 10),
        (ITERATION, 0, 0),
        # A loop over the lines 11 and 12, of which each is recorded once.
        *[(LINE, 1, line) for line in (11, 12, 11, 12)],
        (LINE, 1, 13),
        # A call that is recorded, of a function with the same loop.
        (PUSH, 2, 20),
        *[(LINE, 2, line) for line in (21, 21, 22)],
        (POP, 2, 0),
        (LINE, 1, 14),
        # A call that is not recorded.
        (PUSH, 3, 30),
        (LINE, 3, 31),
        (POP, 3, 0),
        (ITERATION, 0, 1),
        # Only the first iteration is read.
        (LINE, 1, 11),
        (LINE, 1, 15),
    )
    first, last = fast_lines._first_iteration(records)
    assert (first, last) == (0, records.position() - 3)
    fast = _Fast(frozenset({(1, 11), (1, 12), (2, 21)}), frozenset({3}))
    sources: object = Codes()
    found = fast_lines._groups(records, first, last, 0, fast, sources)  # type: ignore[arg-type]
    # The loop's time after the first two executions belongs to line 12.
    loop = frozenset({(1, 11), (1, 12)})
    assert set(found) == {loop, frozenset({(2, 21)}), frozenset({(1, 14), (3, 30), (3, 31)})}


def test_only_frequent_and_fast_lines_are_left_out() -> None:
    call = [(PUSH, 2, 20), (LINE, 2, 21), (POP, 2, 0)]
    # Line 12 does something else.
    loop = [(LINE, 1, 11), (LINE, 1, 12, 1000), *call] * 20
    few = [(LINE, 1, 13)] * 19
    records = log((STARTED, 0, 0), (ITERATION, 0, 0), *loop, *few, (ITERATION, 0, 1))

    def fast(iteration_ns: float) -> _Fast | None:
        return fast_lines._fast(records, 0, records.position(), iteration_ns, 10)

    assert fast(500) == _Fast(frozenset({(1, 11), (2, 21)}), frozenset({2}))
    # In a longer iteration, recording them takes no relevant part.
    assert fast(500_000) is None
