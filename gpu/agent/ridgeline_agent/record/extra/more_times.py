"""More timed iterations, of a quick program or one with slow iterations between others.

Iterations of less than a few milliseconds take a tenth longer in the beginning, until all that they
touch is in the caches, and a few of them differ by as much; those whose memory is watched are
colder still. Where some iterations are slow, more of them show whether that is periodic. All of it
comes behind what was asked for, for a program may have no more iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from ...iterations.rhythm import rhythm
from ..phase_times import PhaseTimes
from ..timing import Timer

# Of slower ones, more would take long.
_QUICK_NS = 20_000_000
PROFILED_FOR_TIMES = 6
_WARM_UP = 8
_TIMED = 24
# Quicker ones go on for so long, to show what happens every hundredth time.
_ENOUGH_NS = 500_000_000
# Where a period is looked for: at most so many, and so long.
_MOST = 400
_LOOK_EVERY = 4
_MOST_NS = 3_000_000_000


def are_quick(times_ns: Sequence[int]) -> bool:
    """Whether the timed iterations should be timed once more."""
    # The median: one that evaluates makes the others no slower.
    return len(times_ns) > 0 and 0 < statistics.median(times_ns) < _QUICK_NS


def more_are_timed_again(times_ns: Sequence[int], quick: bool, most_ns: int, on_cuda: bool) -> bool:
    """Whether another iteration should be timed after these, which are all timed once more.

    Args:
        quick: As `MoreTimes` has it.
        most_ns: How long they may take together.
        on_cuda: Whether a GPU computes.
    """
    count, total_ns = len(times_ns), sum(times_ns)
    if quick and count < _TIMED:
        return True
    if count >= _MOST or total_ns >= most_ns:
        return False
    if on_cuda:
        # The block's wall time would have the looking in it, and the host's clock tells little.
        return False
    # Looking takes longer than a quick iteration.
    if count % _LOOK_EVERY:
        return True
    found = rhythm(times_ns)
    if found.slow:
        return not found.is_settled
    return total_ns < _ENOUGH_NS if quick else True


class MoreTimes:
    """Runs some iterations that are thrown away, and times those behind them.

    Args:
        quick: The iterations are quick; otherwise more are timed for their period alone.
        seconds_left: Until the limit of the run.
    """

    def __init__(self, device: torch.device, quick: bool, seconds_left: float | None) -> None:
        self.timer = Timer(device)
        self.phase_times = PhaseTimes()
        self._is_quick = quick
        self._left_out = 0 if quick else _WARM_UP
        self._most_ns = _MOST_NS
        if seconds_left is not None:
            self._most_ns = min(_MOST_NS, int(seconds_left * 1e9 / 4))
        if self.is_timing:
            self.timer.begin()

    @property
    def is_timing(self) -> bool:
        """Whether the iteration that runs is timed."""
        return self._left_out == _WARM_UP

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them."""
        if self.is_timing:
            self.timer.end(now_ns)
            self.phase_times.iteration_ended()
            on_cuda = self.timer.device.type == "cuda"
            times_ns = self.timer.host_ns
            if not more_are_timed_again(times_ns, self._is_quick, self._most_ns, on_cuda):
                return True
        else:
            self._left_out += 1
        if self.is_timing:
            self.timer.begin()
        return False

    def stop(self) -> None:
        """The program has ended, or it was the last."""
        self.timer.finish()
