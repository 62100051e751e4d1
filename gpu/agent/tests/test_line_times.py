"""Which iterations that vary do so for a reason that is no line's."""

from __future__ import annotations

from ridgeline_agent.line_times import are_pages


def ends(*iterations: tuple[float, int]) -> list[tuple[int, int]]:
    """Iterations of so many milliseconds that were given so many pages each."""
    found = [(0, 7)]
    for took_ms, pages in iterations:
        now, given = found[-1]
        found.append((now + int(took_ms * 1e6), given + pages))
    return found


def test_memory_that_was_given_back_is_no_lines_work() -> None:
    assert are_pages(ends(*[(4.0, 0), (4.0, 0), (5.0, 512), (6.0, 1024)] * 3))


def test_work_is_no_matter_of_pages() -> None:
    # It takes memory too, and much longer than that.
    assert not are_pages(ends(*[(4.0, 0), (4.0, 0), (4.0, 0), (34.0, 1500)] * 3))
    assert not are_pages(ends(*[(4.0, 0), (4.0, 0), (5.0, 0), (6.0, 0)] * 3))
    # The slow ones got fewer.
    assert not are_pages(ends(*[(4.0, 600), (4.0, 600), (5.0, 0), (6.0, 0)] * 3))


def test_few_or_equal_iterations_say_nothing() -> None:
    assert not are_pages([])
    assert not are_pages(ends((4.0, 0), (8.0, 4000)))
    assert not are_pages(ends(*[(4.0, 100)] * 8))
