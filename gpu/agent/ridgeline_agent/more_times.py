"""More iterations of a quick program: some more are profiled, and many are timed once more.

Those of less than a few milliseconds take a tenth longer in the beginning, until all that they
touch is in the caches, and a few of them differ by as much; those whose memory is watched are
colder still. All of it comes behind what was asked for, for a program may have no more iterations.
"""

from __future__ import annotations

import torch

from .phase_times import PhaseTimes
from .timing import Timer

# Slower ones are timed well enough by a few.
_QUICK_NS = 5_000_000
PROFILED_FOR_TIMES = 6
_WARM_UP = 8
_TIMED = 24


def are_quick(timer: Timer) -> bool:
    """Whether the timed iterations should be timed once more."""
    return 0 < timer.total_ns < _QUICK_NS * timer.count


class MoreTimes:
    """Runs some iterations that are thrown away, and times those behind them."""

    def __init__(self, device: torch.device) -> None:
        self.timer = Timer(device)
        self.phase_times = PhaseTimes()
        self._left_out = 0

    @property
    def is_timing(self) -> bool:
        """Whether the iteration that runs is timed."""
        return self._left_out == _WARM_UP

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them."""
        if self.is_timing:
            self.timer.end(now_ns)
            self.phase_times.iteration_ended()
            if self.timer.count == _TIMED:
                return True
        else:
            self._left_out += 1
        if self.is_timing:
            self.timer.begin()
        return False

    def stop(self) -> None:
        """The program has ended, or it was the last."""
        self.timer.finish()
