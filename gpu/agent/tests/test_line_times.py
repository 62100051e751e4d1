"""Which iterations that vary do so for a reason that is no line's."""

from __future__ import annotations

import pytest

from ridgeline_agent.record.line_clock import ITERATION, LINE, POP, PUSH, EventLog
from ridgeline_agent.record.observed import line_times
from ridgeline_agent.record.observed.line_times import are_page_faults, exclusive_times


def ends(*iterations: tuple[float, int]) -> list[tuple[int, int]]:
    """Iterations of so many milliseconds that were given so many pages each."""
    found = [(0, 7)]
    for took_ms, pages in iterations:
        now, given = found[-1]
        found.append((now + int(took_ms * 1e6), given + pages))
    return found


def test_memory_that_was_given_back_is_no_lines_work() -> None:
    assert are_page_faults(ends(*[(4.0, 0), (4.0, 0), (5.0, 512), (6.0, 1024)] * 3))


def test_work_is_no_matter_of_pages() -> None:
    # It takes memory too, and much longer than that.
    assert not are_page_faults(ends(*[(4.0, 0), (4.0, 0), (4.0, 0), (34.0, 1500)] * 3))
    assert not are_page_faults(ends(*[(4.0, 0), (4.0, 0), (5.0, 0), (6.0, 0)] * 3))
    # The slow ones got fewer.
    assert not are_page_faults(ends(*[(4.0, 600), (4.0, 600), (5.0, 0), (6.0, 0)] * 3))


def test_few_or_equal_iterations_say_nothing() -> None:
    assert not are_page_faults([])
    assert not are_page_faults(ends((4.0, 0), (8.0, 4000)))
    assert not are_page_faults(ends(*[(4.0, 100)] * 8))


def test_time_belongs_to_the_innermost_line(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        (0, PUSH, 0, 1, 10),
        (100, ITERATION, 0, 0, 0),
        (130, LINE, 0, 1, 11),
        # A function that line 11 calls, and what another thread does meanwhile.
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
