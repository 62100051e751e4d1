"""Wall time of the unprofiled iterations: the ground truth that everything else is scaled to."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import torch

from ..iterations.rhythm import Rhythm, Round, rhythm
from ..system.cpu_queue import CpuQueue
from ..system.hook_time import HookTime
from .device import synchronize
from .energy import EnergyCounter
from .stack_samples import StackSamples

# The energy counter updates ten to fifty times a second, so shorter blocks are too inaccurate.
_MIN_ENERGY_NS = 500_000_000
# More iterations are timed while the total is below this, because they cost nothing.
_SHORT_TOTAL_NS = 100_000_000
# No more iterations are timed once the total exceeds this, however much they vary.
_LONG_TOTAL_NS = 10_000_000_000
# More iterations are timed while the ratio of slowest to fastest is above this, because a few are
# not representative then.
_VARYING_RATIO = 1.3


def more_are_timed(times_ns: Sequence[int], most: int) -> bool:
    """Whether another iteration should be timed after these, up to `most`.

    The times are those of the host's clock, because querying the device would stall it.
    """
    total_ns = sum(times_ns)
    if len(times_ns) >= most or total_ns >= _LONG_TOTAL_NS:
        return False
    return total_ns < _SHORT_TOTAL_NS or max(times_ns) >= _VARYING_RATIO * min(times_ns)


class Timer:
    """Times a block of iterations.

    On a GPU the host runs ahead of the device, so its clock cannot time single iterations, and
    synchronizing within the block would slow the program down. The block's wall time is exact,
    because it is synchronized at both ends; CUDA events provide the share of each iteration.
    The host's times are without those of the hooks.
    """

    def __init__(self, device: torch.device, hook_time: HookTime) -> None:
        self.device = device
        self.hook_time = hook_time
        # The round of loops that had been reached when the first iteration began, if known.
        self.round: Round | None = None
        # The lines that run meanwhile.
        self.stacks: StackSamples | None = None
        self._begun = 0
        self._block_begun = 0
        self._block_ended = 0
        self._host_ns: list[int] = []
        self._queue: CpuQueue | None = None
        self._waited_before: int | None = None
        self._waited_ns: list[int | None] = []
        self._events: list[Any] = []
        self._energy = EnergyCounter.of(device)
        self._energy_begun: int | None = None
        self._energy_ended: int | None = None

    @property
    def count(self) -> int:
        """The number of timed iterations."""
        return len(self._host_ns)

    @property
    def total_ns(self) -> int:
        """Their total time in nanoseconds, by the host's clock."""
        return sum(self._host_ns)

    @property
    def host_ns(self) -> list[int]:
        """The time of each iteration in nanoseconds, by the host's clock."""
        return self._host_ns

    def begin(self) -> None:
        """Begins an iteration. The first one synchronizes with the device."""
        if self.device.type == "cuda" and not self._events:
            synchronize()
            if self._energy is not None:
                self._energy_begun = self._energy.millijoules()
            self._mark()
            self._block_begun = perf_counter_ns()
        # Opened here, because this is the thread that runs the iterations.
        self._queue = self._queue or CpuQueue()
        self.stacks = self.stacks or StackSamples()
        self._waited_before = self._queue.waited_ns()
        self._begun = perf_counter_ns()
        self.hook_time.iteration_begins(self._begun)

    def end(self, now_ns: int) -> None:
        """Ends the iteration at `now_ns` of `perf_counter_ns`, within a hook."""
        self._host_ns.append(max(now_ns - self._begun - self.hook_time.until(now_ns), 1))
        if self.stacks is not None:
            self.stacks.iteration_ended()
        before, after = self._waited_before, self._queue.waited_ns() if self._queue else None
        self._waited_ns.append(None if before is None or after is None else after - before)
        if self.device.type == "cuda":
            self._mark()

    def finish(self) -> None:
        """Ends the block. Synchronizes with the device."""
        if self.stacks is not None:
            self.stacks.stop()
        if self.device.type == "cuda":
            synchronize()
            self._block_ended = perf_counter_ns()
            if self._energy is not None:
                self._energy_ended = self._energy.millijoules()

    def device_ns(self) -> list[int]:
        """Returns each iteration's time between CUDA events. Empty on a CPU."""
        pairs = zip(self._events, self._events[1:])
        return [round(first.elapsed_time(second) * 1e6) for first, second in pairs]

    def wall_ns(self) -> list[int]:
        """Returns each iteration's wall time; on a GPU its share of the block's time."""
        shares = self.device_ns()
        if not shares or sum(shares) <= 0:
            return self._host_ns
        block = self._block_ended - self._block_begun
        return [round(block * share / sum(shares)) for share in shares]

    def waited_ns(self) -> list[int]:
        """Returns how long the thread waited for the CPU in each iteration. Empty if unknown."""
        known = [waited for waited in self._waited_ns if waited is not None]
        return known if len(known) == self.count else []

    def undisturbed_ns(self) -> list[int]:
        """Returns each iteration's wall time; on a CPU without the time that the thread waited for
        other programs.
        """
        wall_ns, waited_ns = self.wall_ns(), self.waited_ns()
        if self.device.type == "cuda" or not waited_ns:
            return wall_ns
        return [max(wall - waited, 1) for wall, waited in zip(wall_ns, waited_ns)]

    def rhythm(self) -> Rhythm:
        """Returns the pattern in the times of the iterations."""
        return rhythm(self.undisturbed_ns(), self.round)

    def joules(self) -> float | None:
        """Returns the energy of one iteration of the whole GPU in joules, or None if unknown."""
        begun, ended = self._energy_begun, self._energy_ended
        long_enough = self._block_ended - self._block_begun >= _MIN_ENERGY_NS
        if begun is None or ended is None or ended <= begun or not long_enough or not self.count:
            return None
        return (ended - begun) / 1e3 / self.count

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        self._events.append(event)
