"""The number of timed iterations, which depends on the times measured so far."""

from __future__ import annotations

import pytest

from ridgeline_agent.iterations.rhythm import Round
from ridgeline_agent.record.extra.more_times import (
    are_quick,
    is_quick_round,
    more_are_timed_again,
)
from ridgeline_agent.record.extra.signal_grace_period import SignalGracePeriod
from ridgeline_agent.record.timing import more_are_timed

MS = 1_000_000


def ns(times_ms: list[int]) -> list[int]:
    return [time * MS for time in times_ms]


@pytest.mark.parametrize(
    ("times_ms", "more"),
    [
        # Less than 0.1 s in total.
        ([21, 21, 21, 21], True),
        ([21, 21, 21, 21, 21], False),
        ([33, 33, 33], True),
        ([300, 300, 300], False),
        # The slowest iteration takes at least 1.3 times as long as the fastest.
        ([100, 130, 100], True),
        ([100, 129, 100], False),
        # At most ten seconds in total.
        ([2000, 6000, 1999], True),
        ([2000, 6000, 2000], False),
        # At most six iterations.
        ([1] * 5, True),
        ([1] * 6, False),
        ([40, 200] * 3, False),
    ],
)
def test_more_are_timed(times_ms: list[int], more: bool) -> None:
    assert more_are_timed(ns(times_ms), 6) is more


@pytest.mark.parametrize(
    ("times_ms", "quick"),
    [([], False), ([0, 0, 0], False), ([19, 19, 900], True), ([20, 20, 1], False)],
)
def test_are_quick(times_ms: list[int], quick: bool) -> None:
    assert are_quick(ns(times_ms)) is quick


# A single slow iteration: periodic work, or an outlier.
ONE_SLOW = [1, 1, 9, 1]


@pytest.mark.parametrize(
    ("times_ms", "quick", "on_cuda", "more"),
    [
        # Quick iterations: at least 24, and at least 0.5 s in total.
        ([1] * 23, True, False, True),
        ([1] * 24, True, False, True),
        ([20] * 24, True, False, True),
        ([21] * 24, True, False, False),
        ([1] * 396, True, False, True),
        ([1] * 400, True, False, False),
        # On a GPU, more only if they are quick, and then until a slow one has repeated.
        ([1] * 24, True, True, True),
        ([20] * 24, True, True, True),
        ([20] * 28, True, True, False),
        ([20] * 27 + [59], True, True, False),
        ([20] * 27 + [60], True, True, True),
        ([1] * 399 + [60], True, True, False),
        ([30] * 23 + [900], False, True, False),
        # Slow iterations: only to find a period, which is checked after every fourth iteration.
        ([100] * 4, False, False, True),
        ([40, 200] * 3, False, False, True),
        ([40, 200] * 4, False, False, False),
        ([40, 200] * 4 + [100], False, False, True),
        (ONE_SLOW, False, False, True),
        # At most three seconds in total.
        ([400] * 7, False, False, True),
        ([1000] * 3, False, False, False),
    ],
)
def test_more_are_timed_again(times_ms: list[int], quick: bool, on_cuda: bool, more: bool) -> None:
    times_ns = ns(times_ms)
    assert (
        more_are_timed_again(times_ns, lambda: times_ns, None, quick, 3_000 * MS, on_cuda) is more
    )


@pytest.mark.parametrize("on_cuda", [False, True])
@pytest.mark.parametrize(
    ("times_ms", "more"),
    [
        ([40] * 49, True),
        # The first iteration of the next round has been timed, and a whole round.
        ([40] * 30 + [400] + [40] * 18, True),
        ([40] * 30 + [400] + [40] * 21, False),
        # What runs between the rounds took too long. The rest of the round is quick.
        ([40] * 30, True),
        ([40] * 29 + [3000], False),
        ([40] * 30 + [3000], True),
    ],
)
def test_a_round_of_loops_is_timed(times_ms: list[int], on_cuda: bool, more: bool) -> None:
    times_ns = ns(times_ms)
    of_loops = Round(length=50, done=20)
    again = more_are_timed_again(times_ns, lambda: times_ns, of_loops, False, 3_000 * MS, on_cuda)
    assert again is more


def test_only_quick_rounds_are_timed() -> None:
    assert is_quick_round(Round(50, 1), ns([60, 60, 1000]))
    assert not is_quick_round(Round(50, 1), ns([61, 61, 1]))
    assert not is_quick_round(Round(50, 1), [])
    assert not is_quick_round(None, ns([1]))


def test_iterations_that_waited_for_the_cpu_are_not_slow() -> None:
    # Every fourth one is slow; other programs delayed some of the others.
    wall_ns = ns([100, 20, 110, 20, 100, 90, 20, 80, 100, 85, 20, 95, 100, 20, 70, 20])
    undisturbed_ns = ns([100, 20, 20, 20] * 4)
    assert more_are_timed_again(wall_ns, lambda: wall_ns, None, False, 3_000 * MS, False)
    assert not more_are_timed_again(wall_ns, lambda: undisturbed_ns, None, False, 3_000 * MS, False)


def test_signal_grace_period_depends_on_remaining_time() -> None:
    for seconds_left, grace_seconds in ((None, 15.0), (1000.0, 15.0), (8.0, 2.0)):
        period = SignalGracePeriod(seconds_left, 5)
        until_ns = 5 + int(grace_seconds * 1e9)
        assert not period.iteration_ended(until_ns - 1)
        assert period.iteration_ended(until_ns)
