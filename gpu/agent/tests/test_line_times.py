"""Variation of iteration times: page faults, and exclusive times of lines."""

from __future__ import annotations

import pytest

from ridgeline_agent.record.line_clock import ITERATION, LINE, POP, PUSH, EventLog
from ridgeline_agent.record.observed import line_times
from ridgeline_agent.record.observed.line_times import are_page_faults, exclusive_times


def iteration_ends(*iterations: tuple[float, int]) -> list[tuple[int, int]]:
    """Times and page fault counts at the ends of iterations of `(milliseconds, page faults)`."""
    ends = [(0, 7)]
    for milliseconds, faults in iterations:
        time_ns, total_faults = ends[-1]
        ends.append((time_ns + int(milliseconds * 1e6), total_faults + faults))
    return ends


def test_slow_iterations_with_page_faults() -> None:
    assert are_page_faults(iteration_ends(*[(4.0, 0), (4.0, 0), (5.0, 512), (6.0, 1024)] * 3))


def test_slow_iterations_for_other_reasons() -> None:
    # The page faults explain only a small part of the time.
    assert not are_page_faults(iteration_ends(*[(4.0, 0), (4.0, 0), (4.0, 0), (34.0, 1500)] * 3))
    assert not are_page_faults(iteration_ends(*[(4.0, 0), (4.0, 0), (5.0, 0), (6.0, 0)] * 3))
    # Slow iterations have fewer page faults.
    assert not are_page_faults(iteration_ends(*[(4.0, 600), (4.0, 600), (5.0, 0), (6.0, 0)] * 3))


def test_too_few_or_equal_iterations() -> None:
    assert not are_page_faults([])
    assert not are_page_faults(iteration_ends((4.0, 0), (8.0, 4000)))
    assert not are_page_faults(iteration_ends(*[(4.0, 100)] * 8))


def test_exclusive_times_belong_to_innermost_line(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        (0, PUSH, 0, 1, 10),
        (100, ITERATION, 0, 0, 0),
        (130, LINE, 0, 1, 11),
        # A function called by line 11, and an event of another thread.
        (135, PUSH, 0, 2, 20),
        (140, LINE, 5, 3, 30),
        (150, LINE, 0, 2, 21),
        (190, POP, 0, 2, 0),
        (191, LINE, 0, 1, 12),
        (200, ITERATION, 0, 1, 0),
        (207, LINE, 0, 1, 10),
        (220, ITERATION, 0, 2, 0),
    ]
    monkeypatch.setattr(line_times, "timed_records", lambda log: records)
    first = {(1, 10): 30, (1, 11): 5 + 1, (2, 20): 15, (2, 21): 40, (1, 12): 9}
    assert exclusive_times(EventLog(0), 0) == [first, {(1, 12): 7, (1, 10): 13}, {}]
