"""Lines whose times vary between iterations, reported in `observed.line_times`."""

from __future__ import annotations

import pytest

from observed_helpers import START, place, record_complete
from ridgeline_agent.record.observed.line_times import iterations_to_time

# Ignores other activity on this machine.
VARYING = """
    import time
    from ridgeline_agent.record.observed import line_times
    line_times._waited_ns = lambda: 0
    line_times.are_page_faults = lambda ends: False
    number = 0
    def wait():
        time.sleep(0.05 if number % 3 == 0 else 0.005)  # here
    while True:
        number += 1
        iteration_ms = 50 if number % 3 == 0 else 5
        train()
        wait()  # call
"""


def test_varying_line() -> None:
    recording = record_complete(
        START + VARYING, iterations={"warmup": 2, "timed": 6, "profiled": 2}
    )
    result = {
        (line["at"]["file"], line["at"]["line"]): line["ns"]
        for line in recording.manifest["observed"]["line_times"]
    }
    file = place(recording, "# here")["file"]
    slept = result[file, recording.line_of("# here")]
    # After the warm-up, the timing and the profile.
    numbers = range(2 + 6 + 2, 2 + 6 + 2 + 24)
    assert len(slept) == len(numbers)
    assert all(ns >= (50e6 if number % 3 == 0 else 5e6) for number, ns in zip(numbers, slept))
    assert recording.manifest["observed"]["line_times_disturbed"] is False
    # The calling line has only its exclusive time, so it is not always the slower one.
    called = result[file, recording.line_of("# call")]
    assert any(own_ns < slept_ns for own_ns, slept_ns in zip(called, slept))
    assert len(recording.manifest["iterations"]["profiled"]) == 2


@pytest.mark.parametrize(
    ("timed_ms", "seconds_left", "expected"),
    [
        ([10, 11, 10, 10], None, 0),
        # A single outlier happens on every machine.
        ([10, 10, 10, 10, 10, 90], None, 0),
        ([10, 14, 10, 14], None, 24),
        # Half of the iterations are slow, so the median is too.
        ([10, 20, 10, 20, 20, 20], None, 24),
        ([100, 100, 140, 140], None, 8),
        ([70, 70, 70, 100, 100], None, 12),
        ([1000, 1000, 1000, 1400, 1400], None, 8),
        ([2000, 2000, 2000, 2900, 2900], None, 0),
        ([1000, 1000, 1000, 1400, 1400], 30.0, 0),
        ([10, 20, 30], None, 0),
        ([0, 0, 0, 0], None, 0),
    ],
)
def test_iterations_to_time(timed_ms: list[int], seconds_left: float | None, expected: int) -> None:
    timed_ns = [time_ms * 1_000_000 for time_ms in timed_ms]
    assert iterations_to_time(timed_ns, seconds_left) == expected


def test_no_line_times_without_variation() -> None:
    recording = record_complete(START + "    while True:\n        train()\n")
    # Two timed iterations are not enough.
    assert recording.manifest["observed"]["line_times"] == []
    assert recording.manifest["iterations"]["seen"] == 7


@pytest.mark.parametrize("end", ["break", "raise RuntimeError('late')"])
@pytest.mark.parametrize(("last", "expected"), [(14, 0), (19, 9)])
def test_program_that_ends_during_line_timing(end: str, last: int, expected: int) -> None:
    ends = f"number += 1\n        if number > {last}:\n            {end}"
    program = START + VARYING.replace("number += 1", ends)
    recording = record_complete(program, iterations={"warmup": 2, "timed": 6, "profiled": 2})
    assert recording.manifest["status"] == "complete"
    result = recording.manifest["observed"]["line_times"]
    assert all(len(line["ns"]) == expected for line in result) and bool(result) == (expected > 0)


def test_line_times_on_busy_machine() -> None:
    waited = "iter([0, 10**12]).__next__"
    program = START + VARYING.replace("lambda: 0", waited)
    recording = record_complete(program, iterations={"warmup": 2, "timed": 6, "profiled": 2})
    result = recording.manifest["observed"]
    assert result["line_times"] and result["line_times_disturbed"] is True
    assert recording.manifest["iterations"]["seen"] == 2 + 6 + 2 + 24
