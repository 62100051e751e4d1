"""Periodic work: found from iteration times, and profiled over complete periods."""

from __future__ import annotations

import pytest

from recording import record
from ridgeline_agent.iterations.rhythm import Round, rhythm
from ridgeline_agent.record.extra.whole_periods import (
    is_slow_one,
    iterations_to_wait,
    whole_periods,
)

MS = 1_000_000
PPO = [2, 3, 2, 2, 81, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 86, 2, 2, 3]


@pytest.mark.parametrize(
    ("times", "slow", "period", "is_settled"),
    [
        ([100, 103, 99, 101, 100, 104], 0, None, True),
        # Evaluation after every second step.
        ([1984, 550, 2109, 608, 1667, 551], 3, 2, False),
        ([1984, 550, 2109, 608, 1667, 551, 1700, 549], 4, 2, True),
        # Rollouts: two are not enough to be certain, four are.
        (PPO, 2, 11, False),
        ([*PPO, *[2] * 7, 83, 2], 3, 11, False),
        ([*PPO, *[2] * 7, 83, *[2] * 10, 82], 4, 11, True),
        # A single slow iteration may be periodic work or an outlier.
        ([650, 164, 123, 127, 149, 160], 1, None, False),
        # A period that would imply another slow iteration, before the first or after the last one.
        ([1] * 5 + [9, 1, 9, 1, 1, 1], 2, None, False),
        # Unequal distances.
        ([1, 1, 9, 1, 9, 1, 1, 1, 9, 9, 1, 1, 1, 1], 4, None, False),
        ([1, 1, 9, 1, 9, 1, 1, 1, 9, 9, 1, 1, 1, 1, 9, 1, 1, 9], 6, None, True),
        # Evaluation after every second step on a busy machine, where slow and quick times overlap.
        (
            [
                44,
                20,
                43,
                7,
                18,
                7,
                24,
                7,
                23,
                3,
                19,
                13,
                25,
                10,
                30,
                5,
                66,
                12,
                28,
                7,
                25,
                13,
                21,
                3,
            ],
            12,
            2,
            True,
        ),
        # Rollouts on a busy machine with different times, and two disturbed updates.
        (
            [*[291, 1, 1, 1, 81, 1, 1, 1, 117, 46, 1, 1, 41, 1, 1, 1, 53, 57, 1, 1, 136], 1, 1, 1],
            8,
            4,
            True,
        ),
        # One of the seven slow iterations is hardly slow, because the machine was less busy.
        ([*[2, 2, 90] * 3, 2, 2, 6, *[2, 2, 90] * 3], 6, 3, True),
        # One iteration is slow for another reason, and one is not slow at all.
        ([1, 1, 9, 1, 1, 9, 9, 1, 9, 1, 3, 9, 1, 1, 9], 6, 3, True),
        # A rollout before every 35th update, and a pass over it before every seventh. A single
        # rollout may be an outlier.
        ([*[7] * 4, *[15, *[7] * 6] * 2, 1000, *[7] * 6, *[15, *[7] * 6] * 3], 6, 7, False),
        ([*[7] * 4, *[1000, *[7] * 6, *[15, *[7] * 6] * 4] * 2], 2, 35, False),
        ([*[7] * 4, *[1000, *[7] * 6, *[15, *[7] * 6] * 4] * 4], 4, 35, True),
        # The passes take as long as the rollouts.
        ([*[7] * 4, *[200, *[7] * 6, *[80, *[7] * 6] * 4] * 4], 20, 7, True),
        # Times of variable-length inputs, without a gap between slow and quick iterations.
        ([90, 50, 130, 60, 70, 110, 55, 120, 80, 65, 100, 75, 140, 85, 95, 58], 0, None, True),
        ([50, 60, 70, 80, 90, 100, 110, 130, 150], 0, None, True),
        # Slow, but adds less than 5%.
        ([*[10] * 40, 16], 0, None, True),
        ([], 0, None, True),
        ([5, 500], 0, None, True),
    ],
)
def test_rhythm(times: list[int], slow: int, period: int | None, is_settled: bool) -> None:
    result = rhythm([time * MS for time in times])
    assert (len(result.slow), result.period, result.is_settled) == (slow, period, is_settled)


def test_one_round_of_nested_loops_is_enough() -> None:
    times = [*[7] * 4, *[15, *[7] * 6] * 2, 1000, *[7] * 6, *[15, *[7] * 6] * 2]
    found = rhythm([time * MS for time in times], Round(35, 35 - 18))
    assert (found.slow, found.period, found.is_settled) == ((18,), 35, True)


@pytest.mark.parametrize(
    ("profiled_ms", "seconds_left", "expected"),
    [
        ([30, 90], None, True),
        # The cold first one is slower, as always.
        ([90, 30], None, False),
        # Twice as slow without the profiler too.
        ([10, 35], None, False),
        ([30, 31], None, False),
        ([90], None, False),
        ([3000, 9000], 40.0, False),
    ],
)
def test_a_slow_profiled_iteration_is_recognized(
    profiled_ms: list[int], seconds_left: float | None, expected: bool
) -> None:
    timed_ns = [20 * MS] * 3
    assert is_slow_one([ms * MS for ms in profiled_ms], timed_ns, seconds_left) is expected


def test_whole_periods_are_limited() -> None:
    assert whole_periods(2, 2, [MS], None) == 2
    assert whole_periods(11, 8, [MS], None) == 11
    assert whole_periods(3, 8, [MS], None) == 9
    assert whole_periods(3, 8, [600 * MS], None) == 3
    assert whole_periods(65, 8, [MS], None) == 0
    assert whole_periods(11, 8, [600 * MS], None) == 0
    assert whole_periods(11, 8, [100 * MS], 4.0) == 0


def test_memory_is_measured_in_quick_iterations() -> None:
    slow = [1, 1, 1, 9] * 4
    result = rhythm([time * MS for time in slow])
    assert (result.period, result.place) == (4, 3)
    # The next iteration is the first of a period. The first two iterations are not slow.
    assert [iterations_to_wait(result, 16 + offset, 2) for offset in range(4)] == [0, 0, 2, 1]
    every_second = rhythm([time * MS for time in [9, 1] * 4])
    # The first of both iterations is slow.
    assert [iterations_to_wait(every_second, 8 + offset, 2) for offset in range(2)] == [0, 1]


PERIODIC = """
    import torch
    from torch import nn
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(3, 4)

    def rollout():
        torch.ones(3)  # the rollout

    for step in range({steps}):
        iteration_ms = 60 if step % 7 == 0 else 1
        if step % 7 == 0:
            rollout()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
ITERATIONS = {"warmup": 2, "timed": 3, "timed_at_most": 6, "profiled": 2}


def test_whole_period_is_profiled() -> None:
    recording = record(PERIODIC.format(steps=1000), iterations=ITERATIONS)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert iterations["period"] == 7
    assert len(iterations["profiled"]) == 14
    assert iterations["measured"] == 1
    # The line log contains exactly these iterations.
    marks = [entry[3] for entry in recording.events() if entry[1] == "ITERATION"]
    assert marks == list(range(15))
    line = recording.line_of("# the rollout")
    rollouts = [ns for ns, kind, _, _, b in recording.events() if kind == "LINE" and b == line]
    windows = iterations["profiled"]
    slow = [i for ns in rollouts for i, (start, end) in enumerate(windows) if start <= ns <= end]
    # Two complete periods. Memory is measured in quick iterations.
    assert len(slow) == 2 and slow[1] - slow[0] == 7
    assert slow[0] > iterations["measured"]
    assert recording.manifest["notes"] == []


def test_program_that_ends_during_second_profile() -> None:
    # Warm-up, timing and first profile, timing for the period, and 4 of 7 profiled iterations.
    recording = record(PERIODIC.format(steps=13 + 8 + 24 + 4), iterations=ITERATIONS)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert len(iterations["profiled"]) == 8
    marks = [entry[3] for entry in recording.events() if entry[1] == "ITERATION"]
    assert marks == list(range(9))


def test_requested_iterations_are_not_exceeded() -> None:
    request = {"warmup": 2, "timed": 20, "profiled": 2}
    recording = record(PERIODIC.format(steps=1000), iterations=request)
    iterations = recording.manifest["iterations"]
    assert (len(iterations["timed_ns"]), len(iterations["profiled"])) == (20, 2)
    assert iterations["period"] == 7
