"""Periodic work: iterations that are slow at regular intervals.

A loop may evaluate every hundredth step, or collect a rollout before every sixteenth update. The
median of its iterations hides that, and a few profiled iterations miss it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

# Minimum ratio of the fastest slow iteration to the slowest other one. Variable lengths and a busy
# machine spread iterations without such a gap.
_GAP = 1.5
# Minimum share of total time that slow iterations add. Less does not change the mean.
_MIN_EXCESS = 0.05
_MIN_ITERATIONS = 4
# Two slow iterations form a period only if their times are similar, and stand out this far.
_SIMILAR_RATIO = 1.3
_CLEAR_GAP = 3.0
# After this many slow iterations without a period, none is expected any more.
_ENOUGH_SLOW = 6
# The minimum share of the time that slow iterations add for some of them to hide the others.
_DOMINANT = 2 / 3
# For ranks: the minimum number of slow iterations, and the longest period. The share of pairs of a
# slow and another iteration in which the slow one is faster may be larger if there are more slow
# ones.
_MIN_SLOW = 5
_MAX_PERIOD = 64
_MAX_BELOW = 0.15
_BELOW_FOR_EACH = 0.03
# For each this many periodic iterations, one more may be slow for another reason, and one may be
# missing because it was not slow enough.
_FOR_EACH_OUTLIER = 3


@dataclass(frozen=True)
class Round:
    """A round of the innermost loops, which an outer loop repeats."""

    # The number of iterations in a round.
    length: int
    # How many of them have ended.
    done: int

    @property
    def place(self) -> int:
        """The number of iterations from now until the first one of the next round. That includes
        what runs between two rounds.
        """
        return (self.length - self.done) % self.length

    def after(self, iterations: int) -> Round:
        """Returns the round after this number of iterations."""
        return Round(self.length, (self.done + iterations) % self.length)


@dataclass(frozen=True)
class Rhythm:
    """The pattern in the times of consecutive iterations."""

    # Positions of the slow iterations.
    slow: tuple[int, ...]
    # Distance between slow iterations. None if there are none, or at irregular distances.
    period: int | None
    # Remainder of the positions of periodic slow iterations, modulo the period.
    place: int
    # Whether more iterations would not change the result.
    is_settled: bool


def rhythm(times_ns: Sequence[int], of_loops: Round | None = None) -> Rhythm:
    """Analyzes the times of consecutive iterations.

    Args:
        of_loops: The round that the loops had reached before the first of them, if known.
    """
    # On a log scale, slow iterations that differ among themselves stay together. On a linear scale,
    # small variations of fast ones do not matter.
    found = [_read(times_ns, _slow(times_ns, scale)) for scale in (math.log, float)]
    best = max(found, key=lambda one: (one.period is not None, len(one.slow) > 0, one.is_settled))
    if best.period is None:
        best = _by_place(times_ns) or best
    if of_loops is not None and _begin_slowly(times_ns, of_loops):
        slow = tuple(range(of_loops.place, len(times_ns), of_loops.length))
        found.append(Rhythm(slow, of_loops.length, of_loops.place, True))
        if best.period is None:
            return found[-1]
    # Of nested loops, each may begin slowly: a rollout before every 35th update, and a pass over it
    # before every seventh.
    outer = max(
        (one for one in found if _dominates(one, best, times_ns)), key=_by_period, default=None
    )
    if outer is None:
        return best
    if outer.period is not None:
        return outer
    return replace(best, is_settled=best.is_settled and outer.is_settled)


def _by_period(one: Rhythm) -> int:
    return one.period or 0


def _dominates(outer: Rhythm, inner: Rhythm, times_ns: Sequence[int]) -> bool:
    """Whether some of the slow iterations add most of the time that all of them add, at a longer
    period or at one that is not known yet.
    """
    if inner.period is None or not outer.slow or not set(outer.slow) < set(inner.slow):
        return False
    if outer.period is not None and outer.period % inner.period:
        return False
    typical_ns = statistics.median(times_ns)
    of_outer, of_inner = (
        sum(times_ns[at] - typical_ns for at in one.slow) for one in (outer, inner)
    )
    return of_outer >= _DOMINANT * of_inner


def _begin_slowly(times_ns: Sequence[int], of_loops: Round) -> bool:
    """Whether the first iterations of rounds are slow. The loops' source shows which those are, so
    one is enough.
    """
    if len(times_ns) < of_loops.length:
        return False
    first = times_ns[of_loops.place :: of_loops.length]
    others = [ns for at, ns in enumerate(times_ns) if at % of_loops.length != of_loops.place]
    typical = statistics.median(others)
    return min(first) >= _GAP * typical and sum(first) - len(first) * typical >= (
        _MIN_EXCESS * sum(times_ns)
    )


def _by_place(times_ns: Sequence[int]) -> Rhythm | None:
    """Finds a period by ranks, if noise has closed the gap: Mann and Whitney's test, "On a test of
    whether one of two random variables is stochastically larger than the other" (1947).
    """
    count = len(times_ns)
    order = sorted(range(count), key=lambda index: times_ns[index])
    ranks = [0] * count
    for rank, index in enumerate(order, 1):
        ranks[index] = rank
    for period in range(2, min(count // _MIN_SLOW, _MAX_PERIOD) + 1):
        for place in range(period):
            slow = len(range(place, count, period))
            above = sum(ranks[place::period]) - slow * (slow + 1) / 2
            minimum = 1 - min(_MAX_BELOW, (slow - 2) * _BELOW_FOR_EACH)
            if slow < _MIN_SLOW or above < minimum * slow * (count - slow):
                continue
            others = [ns for index, ns in enumerate(times_ns) if index % period != place]
            if statistics.median(times_ns[place::period]) >= _GAP * statistics.median(others):
                return Rhythm(tuple(range(place, count, period)), period, place, True)
    return None


def _read(times_ns: Sequence[int], split: tuple[tuple[int, ...], float]) -> Rhythm:
    slow, gap = split
    periods = {later - earlier for earlier, later in zip(slow, slow[1:])}
    found = (one for one in sorted(periods) if _is_period(one, slow, len(times_ns)))
    period = next(found, None)
    place = 0 if period is None else _place(period, slow)[0]
    if period is None:
        return Rhythm(slow, None, 0, not 0 < len(slow) < _ENOUGH_SLOW)
    if len(slow) > 2:
        # Three may be equally spaced by chance.
        return Rhythm(slow, period, place, len(slow) > 3)
    first, second = (times_ns[index] for index in slow)
    is_likely = gap >= _CLEAR_GAP and max(first, second) <= _SIMILAR_RATIO * min(first, second)
    return Rhythm(slow, period if is_likely else None, place, False)


def _place(period: int, slow: tuple[int, ...]) -> tuple[int, int]:
    """Returns the most frequent position of slow iterations in a period, and its count."""
    return Counter(index % period for index in slow).most_common(1)[0]


def _is_period(period: int, slow: tuple[int, ...], count: int) -> bool:
    """Whether slow iterations mostly have this distance, with few exceptions."""
    place, periodic = _place(period, slow)
    missing, others = len(range(place, count, period)) - periodic, len(slow) - periodic
    return periodic > 1 and max(missing, others) <= periodic // _FOR_EACH_OUTLIER


def _slow(
    times_ns: Sequence[int], scale: Callable[[float], float]
) -> tuple[tuple[int, ...], float]:
    """Returns the positions of the slow iterations, at most half of all, and the gap to the others.

    The division follows Otsu, "A threshold selection method from gray-level histograms" (1979): it
    maximizes the between-class variance.
    """
    count = len(times_ns)
    if count < _MIN_ITERATIONS:
        return (), 1.0
    ordered = sorted(times_ns)
    sums = list(itertools.accumulate(ordered, initial=0))
    scaled = list(itertools.accumulate((scale(max(ns, 1)) for ns in ordered), initial=0.0))

    def between_class_variance(index: int) -> float:
        mean, mean_slow = scaled[index] / index, (scaled[-1] - scaled[index]) / (count - index)
        return index * (count - index) * (mean_slow - mean) ** 2

    first = max(range((count + 1) // 2, count), key=between_class_variance)
    gap = ordered[first] / max(ordered[first - 1], 1)
    excess = sums[-1] - sums[first] - (count - first) * ordered[first // 2]
    if gap < _GAP or excess < _MIN_EXCESS * sums[-1]:
        return (), 1.0
    return tuple(index for index, ns in enumerate(times_ns) if ns >= ordered[first]), gap
