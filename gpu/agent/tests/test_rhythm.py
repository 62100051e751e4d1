"""Periodic work among iterations: found from their times, and profiled over whole periods."""

from __future__ import annotations

import pytest

from recording import record
from ridgeline_agent.iterations.rhythm import rhythm
from ridgeline_agent.record.extra.whole_periods import iterations_to_wait, whole_periods

MS = 1_000_000
PPO = [2, 3, 2, 2, 81, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 86, 2, 2, 3]


@pytest.mark.parametrize(
    ("times", "slow", "period", "is_settled"),
    [
        ([100, 103, 99, 101, 100, 104], 0, None, True),
        # Every second step is evaluated.
        ([1984, 550, 2109, 608, 1667, 551], 3, 2, False),
        ([1984, 550, 2109, 608, 1667, 551, 1700, 549], 4, 2, True),
        # Two rollouts that are alike; four are certain.
        (PPO, 2, 11, False),
        ([*PPO, *[2] * 7, 83, 2], 3, 11, False),
        ([*PPO, *[2] * 7, 83, *[2] * 10, 82], 4, 11, True),
        # One slow iteration may be the first of many, or an accident.
        ([650, 164, 123, 127, 149, 160], 1, None, False),
        # A period that would have had another slow one: before the first, or behind the last.
        ([1] * 5 + [9, 1, 9, 1, 1, 1], 2, None, False),
        # Unequal distances.
        ([1, 1, 9, 1, 9, 1, 1, 1, 9, 9, 1, 1, 1, 1], 4, None, False),
        ([1, 1, 9, 1, 9, 1, 1, 1, 9, 9, 1, 1, 1, 1, 9, 1, 1, 9], 6, None, True),
        # A busy machine, on which slow and quick ones overlap: every second is evaluated.
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
        # Rollouts on a busy machine, which differ among themselves and disturb two updates.
        (
            [*[291, 1, 1, 1, 81, 1, 1, 1, 117, 46, 1, 1, 41, 1, 1, 1, 53, 57, 1, 1, 136], 1, 1, 1],
            8,
            4,
            True,
        ),
        # One of seven is hardly slow: the machine was less busy just then.
        ([*[2, 2, 90] * 3, 2, 2, 6, *[2, 2, 90] * 3], 6, 3, True),
        # One of them is slow for another reason, and another is no slow one at all.
        ([1, 1, 9, 1, 1, 9, 9, 1, 9, 1, 3, 9, 1, 1, 9], 6, 3, True),
        # Variable lengths spread, and leave no gap.
        ([90, 50, 130, 60, 70, 110, 55, 120, 80, 65, 100, 75, 140, 85, 95, 58], 0, None, True),
        ([50, 60, 70, 80, 90, 100, 110, 130, 150], 0, None, True),
        # Slow, but it adds less than a twentieth.
        ([*[10] * 40, 16], 0, None, True),
        ([], 0, None, True),
        ([5, 500], 0, None, True),
    ],
)
def test_rhythm(times: list[int], slow: int, period: int | None, is_settled: bool) -> None:
    found = rhythm([time * MS for time in times])
    assert (len(found.slow), found.period, found.is_settled) == (slow, period, is_settled)


def test_whole_periods_have_a_bound() -> None:
    assert whole_periods(2, 2, [MS], None) == 2
    assert whole_periods(11, 8, [MS], None) == 11
    assert whole_periods(3, 8, [MS], None) == 9
    assert whole_periods(3, 8, [600 * MS], None) == 3
    assert whole_periods(65, 8, [MS], None) == 0
    assert whole_periods(11, 8, [600 * MS], None) == 0
    assert whole_periods(11, 8, [100 * MS], 4.0) == 0


def test_memory_is_watched_in_quick_iterations() -> None:
    slow = [1, 1, 1, 9] * 4
    found = rhythm([time * MS for time in slow])
    assert (found.period, found.place) == (4, 3)
    # The next is the first of a period, and neither of the first two is slow.
    assert [iterations_to_wait(found, 16 + at, 2) for at in range(4)] == [0, 0, 2, 1]
    every_second = rhythm([time * MS for time in [9, 1] * 4])
    # One of both is slow: the first.
    assert [iterations_to_wait(every_second, 8 + at, 2) for at in range(2)] == [0, 1]


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
ASKED = {"warmup": 2, "timed": 3, "timed_at_most": 6, "profiled": 2}


def test_a_whole_period_is_profiled() -> None:
    recording = record(PERIODIC.format(steps=1000), iterations=ASKED)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert iterations["period"] == 7
    assert len(iterations["profiled"]) == 14
    assert iterations["measured"] == 1
    # The line log has those iterations, and no others.
    marks = [entry[3] for entry in recording.events() if entry[1] == "ITERATION"]
    assert marks == list(range(15))
    line = recording.line_of("# the rollout")
    rollouts = [at for at, kind, _, _, b in recording.events() if kind == "LINE" and b == line]
    windows = iterations["profiled"]
    slow = [place for at in rollouts for place, (b, e) in enumerate(windows) if b <= at <= e]
    # Two whole periods, and memory is watched in quick iterations.
    assert len(slow) == 2 and slow[1] - slow[0] == 7
    assert slow[0] > iterations["measured"]
    assert recording.manifest["notes"] == []


def test_a_program_that_ends_within_the_second_profile_keeps_the_first() -> None:
    # Warm-up, timing and the first profile; as many again for the period; four of seven profiled.
    recording = record(PERIODIC.format(steps=13 + 8 + 24 + 4), iterations=ASKED)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert len(iterations["profiled"]) == 8
    marks = [entry[3] for entry in recording.events() if entry[1] == "ITERATION"]
    assert marks == list(range(9))


def test_what_was_asked_for_is_not_exceeded() -> None:
    asked = {"warmup": 2, "timed": 20, "profiled": 2}
    recording = record(PERIODIC.format(steps=1000), iterations=asked)
    iterations = recording.manifest["iterations"]
    assert (len(iterations["timed_ns"]), len(iterations["profiled"])) == (20, 2)
    assert iterations["period"] == 7
