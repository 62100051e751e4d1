"""More timed iterations, for a fast program or one with occasional slow iterations.

Iterations of less than a few milliseconds take 10% longer in the beginning, until everything is in
the caches, and a few of them differ by as much; those whose memory is observed have even colder
caches. If some iterations are slow, more of them show whether that is periodic. This comes after
what was requested, because a program may have no more iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from ...iterations.rhythm import Round, rhythm
from ...system.hook_time import HookTime
from ..phase_times import PhaseTimes
from ..rounds import MAX_ITERATIONS
from ..timing import Timer

# More of slower iterations would take too long.
_QUICK_NS = 20_000_000
PROFILED_FOR_TIMES = 6
_WARM_UP = 8
_TIMED = 24
# Faster iterations continue for this long, to show what happens every hundredth time.
_ENOUGH_NS = 500_000_000
# Limits for finding a period.
_MAX_ITERATIONS = MAX_ITERATIONS
_ANALYZE_EVERY = 4
# On a GPU, the minimum ratio of a slow iteration to a typical one, by the host's clock.
_SLOW_RATIO = 3
_MAX_NS = 3_000_000_000
# The same for a round of loops, including what runs between two of them.
_MAX_NS_OF_ROUND = 6_000_000_000


def are_quick(times_ns: Sequence[int]) -> bool:
    """Whether the timed iterations are fast enough to be timed again."""
    # The median, because an iteration with an evaluation does not slow the others down.
    return len(times_ns) > 0 and 0 < statistics.median(times_ns) < _QUICK_NS


def is_quick_round(of_loops: Round | None, times_ns: Sequence[int]) -> bool:
    """Whether a round of loops is short enough to be timed, if its iterations take this long."""
    if of_loops is None or not times_ns:
        return False
    return of_loops.length * statistics.median(times_ns) <= _MAX_NS


def more_are_timed_again(
    times_ns: Sequence[int],
    undisturbed_ns: Callable[[], Sequence[int]],
    of_loops: Round | None,
    quick: bool,
    max_ns: int,
    on_cuda: bool,
) -> bool:
    """Whether another iteration should be timed after these, in the second timing.

    Args:
        undisturbed_ns: Returns the same without the time that other programs took. Called only now
            and then, because what it reads evicts the caches of the next iteration.
        of_loops: The round of loops to time, if any.
        quick: See `MoreTimes`.
        max_ns: Time limit for all of them.
        on_cuda: Whether a GPU computes.
    """
    count, total_ns = len(times_ns), sum(times_ns)
    if quick and count < _TIMED:
        return True
    if of_loops is not None and count < of_loops.length:
        # After what runs between two rounds, the others are fast.
        return total_ns < max_ns or count > of_loops.place
    if count >= _MAX_ITERATIONS or total_ns >= max_ns:
        return False
    # The analysis takes longer than a fast iteration.
    if count % _ANALYZE_EVERY:
        return True
    if on_cuda:
        # The block's wall time includes the analysis, so a slow iteration is only looked for.
        typical_ns = statistics.median(times_ns[:_TIMED])
        has_slow = max(times_ns) >= _SLOW_RATIO * typical_ns
        return quick and (has_slow or total_ns < _ENOUGH_NS)
    found = rhythm(undisturbed_ns(), of_loops)
    if found.slow:
        return not found.is_settled
    return total_ns < _ENOUGH_NS if quick else True


class MoreTimes:
    """Runs some warm-up iterations, and times those after them.

    Args:
        quick: The iterations are fast; otherwise more are timed only to find their period.
        of_loops: The round of loops to time, if any.
        learn_round: Called at the end of each timed iteration if that round is unknown. Returns it
            when it is learned.
        seconds_left: Time until the limit of the run.
    """

    def __init__(
        self,
        device: torch.device,
        hook_time: HookTime,
        quick: bool,
        of_loops: Round | None,
        learn_round: Callable[[], Round | None] | None,
        seconds_left: float | None,
    ) -> None:
        self.timer = Timer(device, hook_time)
        self.phase_times = PhaseTimes()
        self._is_quick = quick
        self._learn_round = learn_round
        self._seconds_left = seconds_left
        self._skipped = 0 if quick else _WARM_UP
        if of_loops is not None:
            self.timer.round = of_loops.after(_WARM_UP - self._skipped)
        if self.is_timing:
            self.timer.begin()

    @property
    def _max_ns(self) -> int:
        limit_ns = _MAX_NS if self.timer.round is None else _MAX_NS_OF_ROUND
        if self._seconds_left is None:
            return limit_ns
        return min(limit_ns, int(self._seconds_left * 1e9 / 4))

    @property
    def longest_seconds(self) -> float | None:
        """The time after which what runs between two rounds of loops is not waited for any more;
        None if there are no rounds.
        """
        return None if self.timer.round is None else (self._max_ns + _MAX_NS) / 1e9

    @property
    def is_timing(self) -> bool:
        """Whether the current iteration is timed."""
        return self._skipped == _WARM_UP

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one."""
        if self.is_timing:
            self.timer.end(now_ns)
            self.phase_times.iteration_ended()
            self._update_round()
            on_cuda = self.timer.device.type == "cuda"
            if not more_are_timed_again(
                self.timer.host_ns,
                self.timer.undisturbed_ns,
                self.timer.round,
                self._is_quick,
                self._max_ns,
                on_cuda,
            ):
                return True
        else:
            self._skipped += 1
        if self.is_timing:
            self.timer.begin()
        return False

    def _update_round(self) -> None:
        if self._learn_round is None or self.timer.round is not None:
            return
        of_loops = self._learn_round()
        if of_loops is not None and is_quick_round(of_loops, self.timer.host_ns):
            self.timer.round = of_loops.after(-self.timer.count)

    def stop(self) -> None:
        """The program has ended, or that was the last iteration."""
        self.timer.finish()
