"""Periodic work: iterations that are slow at regular intervals.

A loop may evaluate every hundredth step, or collect a rollout before every sixteenth update. The
median of its iterations hides that, and a few profiled ones miss it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The quickest of the slow iterations over the slowest of the others. Variable lengths and a busy
# machine spread iterations without such a gap.
_GAP = 1.5
# The share of the program's time that slow iterations add; less does not change the mean.
_LEAST_EXCESS = 0.05
_FEWEST = 4
# Two slow iterations make a period only where they are alike, and stand out this far.
_ALIKE = 1.3
_FAR = 3.0
# After so many slow iterations without a period, there is none to wait for.
_ENOUGH = 6
# By ranks: so many have to be slow, at most every so many. The share of pairs of a slow and another
# iteration in which the slow one is quicker may be larger where more of them are slow.
_FEWEST_SLOW = 5
_LONGEST = 64
_MOST_BELOW = 0.15
_BELOW_FOR_EACH = 0.03
# For so many periodic ones, one more may be slow for another reason, and one be missing that was
# not slow enough.
_FOR_EACH_OUTLIER = 3


@dataclass(frozen=True)
class Rhythm:
    """What the times of consecutive iterations show."""

    # Positions of the slow ones.
    slow: tuple[int, ...]
    # Every so many iterations one is slow; None where none is, or at unequal distances.
    period: int | None
    # Positions that are slow because of the period have this remainder.
    place: int
    # Whether more iterations would show nothing new.
    is_settled: bool


def rhythm(times_ns: Sequence[int]) -> Rhythm:
    """Reads the times of consecutive iterations."""
    # By ratios, slow iterations that differ among themselves stay together, and by differences a
    # small disturbance of quick ones is left out.
    found = [_read(times_ns, _slow(times_ns, scale)) for scale in (math.log, float)]
    best = max(found, key=lambda one: (one.period is not None, len(one.slow) > 0, one.is_settled))
    if best.period is None and (by_place := _by_place(times_ns)) is not None:
        return by_place
    return best


def _by_place(times_ns: Sequence[int]) -> Rhythm | None:
    """A period whose slow place stands out by ranks, where noise has closed the gap: Mann and
    Whitney's test, "On a test of whether one of two random variables is stochastically larger than
    the other" (1947).
    """
    count = len(times_ns)
    order = sorted(range(count), key=lambda at: times_ns[at])
    ranks = [0] * count
    for rank, at in enumerate(order, 1):
        ranks[at] = rank
    for period in range(2, min(count // _FEWEST_SLOW, _LONGEST) + 1):
        for place in range(period):
            slow = len(range(place, count, period))
            above = sum(ranks[place::period]) - slow * (slow + 1) / 2
            least = 1 - min(_MOST_BELOW, (slow - 2) * _BELOW_FOR_EACH)
            if slow < _FEWEST_SLOW or above < least * slow * (count - slow):
                continue
            others = [ns for at, ns in enumerate(times_ns) if at % period != place]
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
        return Rhythm(slow, None, 0, not 0 < len(slow) < _ENOUGH)
    if len(slow) > 2:
        # Three may lie at equal distances by chance.
        return Rhythm(slow, period, place, len(slow) > 3)
    first, second = (times_ns[at] for at in slow)
    is_likely = gap >= _FAR and max(first, second) <= _ALIKE * min(first, second)
    return Rhythm(slow, period if is_likely else None, place, False)


def _place(period: int, slow: tuple[int, ...]) -> tuple[int, int]:
    """The place in a period that is slow, and how often it was."""
    return Counter(at % period for at in slow).most_common(1)[0]


def _is_period(period: int, slow: tuple[int, ...], count: int) -> bool:
    """Whether mostly every so many iterations one is slow, and hardly any other."""
    place, periodic = _place(period, slow)
    missing, others = len(range(place, count, period)) - periodic, len(slow) - periodic
    return periodic > 1 and max(missing, others) <= periodic // _FOR_EACH_OUTLIER


def _slow(
    times_ns: Sequence[int], scale: Callable[[float], float]
) -> tuple[tuple[int, ...], float]:
    """Positions of the slow iterations, at most half of them, and how far they stand out.

    Where to divide follows Otsu, "A threshold selection method from gray-level histograms" (1979):
    the means of both parts are as far apart as can be, for how many they are.
    """
    count = len(times_ns)
    if count < _FEWEST:
        return (), 1.0
    ordered = sorted(times_ns)
    sums = list(itertools.accumulate(ordered, initial=0))
    scaled = list(itertools.accumulate((scale(max(ns, 1)) for ns in ordered), initial=0.0))

    def apart(at: int) -> float:
        mean, mean_slow = scaled[at] / at, (scaled[-1] - scaled[at]) / (count - at)
        return at * (count - at) * (mean_slow - mean) ** 2

    first = max(range((count + 1) // 2, count), key=apart)
    gap = ordered[first] / max(ordered[first - 1], 1)
    excess = sums[-1] - sums[first] - (count - first) * ordered[first // 2]
    if gap < _GAP or excess < _LEAST_EXCESS * sums[-1]:
        return (), 1.0
    return tuple(at for at, ns in enumerate(times_ns) if ns >= ordered[first]), gap
