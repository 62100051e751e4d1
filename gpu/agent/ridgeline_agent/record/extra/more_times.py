"""More timed iterations, for a fast program or one with occasional slow iterations.

Iterations of less than a few milliseconds take 10% longer in the beginning, until everything is in
the caches, and a few of them differ by as much; those whose memory is observed have even colder
caches. If some iterations are slow, more of them show whether that is periodic. This comes after
what was requested, because a program may have no more iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from ...iterations.rhythm import rhythm
from ..phase_times import PhaseTimes
from ..timing import Timer

# More of slower iterations would take too long.
_QUICK_NS = 20_000_000
PROFILED_FOR_TIMES = 6
_WARM_UP = 8
_TIMED = 24
# Faster iterations continue for this long, to show what happens every hundredth time.
_ENOUGH_NS = 500_000_000
# Limits for finding a period.
_MAX_ITERATIONS = 400
_ANALYZE_EVERY = 4
_MAX_NS = 3_000_000_000


def are_quick(times_ns: Sequence[int]) -> bool:
    """Whether the timed iterations are fast enough to be timed again."""
    # The median, because an iteration with an evaluation does not slow the others down.
    return len(times_ns) > 0 and 0 < statistics.median(times_ns) < _QUICK_NS


def more_are_timed_again(
    times_ns: Sequence[int],
    undisturbed_ns: Sequence[int],
    quick: bool,
    max_ns: int,
    on_cuda: bool,
) -> bool:
    """Whether another iteration should be timed after these, in the second timing.

    Args:
        undisturbed_ns: The same without the time that other programs took.
        quick: See `MoreTimes`.
        max_ns: Time limit for all of them.
        on_cuda: Whether a GPU computes.
    """
    count, total_ns = len(times_ns), sum(times_ns)
    if quick and count < _TIMED:
        return True
    if count >= _MAX_ITERATIONS or total_ns >= max_ns:
        return False
    if on_cuda:
        # The block's wall time would include the analysis, and the host's clock shows little.
        return False
    # The analysis takes longer than a fast iteration.
    if count % _ANALYZE_EVERY:
        return True
    found = rhythm(undisturbed_ns)
    if found.slow:
        return not found.is_settled
    return total_ns < _ENOUGH_NS if quick else True


class MoreTimes:
    """Runs some warm-up iterations, and times those after them.

    Args:
        quick: The iterations are fast; otherwise more are timed only to find their period.
        seconds_left: Time until the limit of the run.
    """

    def __init__(self, device: torch.device, quick: bool, seconds_left: float | None) -> None:
        self.timer = Timer(device)
        self.phase_times = PhaseTimes()
        self._is_quick = quick
        self._skipped = 0 if quick else _WARM_UP
        self._max_ns = _MAX_NS
        if seconds_left is not None:
            self._max_ns = min(_MAX_NS, int(seconds_left * 1e9 / 4))
        if self.is_timing:
            self.timer.begin()

    @property
    def is_timing(self) -> bool:
        """Whether the current iteration is timed."""
        return self._skipped == _WARM_UP

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one."""
        if self.is_timing:
            self.timer.end(now_ns)
            self.phase_times.iteration_ended()
            on_cuda = self.timer.device.type == "cuda"
            times_ns = self.timer.host_ns
            undisturbed_ns = times_ns if on_cuda else self.timer.undisturbed_ns()
            if not more_are_timed_again(
                times_ns, undisturbed_ns, self._is_quick, self._max_ns, on_cuda
            ):
                return True
        else:
            self._skipped += 1
        if self.is_timing:
            self.timer.begin()
        return False

    def stop(self) -> None:
        """The program has ended, or that was the last iteration."""
        self.timer.finish()
