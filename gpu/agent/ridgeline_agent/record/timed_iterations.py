"""The timing stage: iterations run normally, and their time is the one that is reported."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..iterations.tracker import IterationTracker
from ..protocol.spec import RunSpec
from .observed.collector import Observed
from .phase_times import PhaseTimes
from .timing import Timer, more_are_timed


class TimedIterations:
    """The iterations that are being timed or were timed.

    Args:
        all_ranks: Waits for all ranks and returns the sum of their numbers.
    """

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        observed: Observed,
        all_ranks: Callable[[str, int], int],
    ) -> None:
        self.requested = spec.iterations
        self._tracker = tracker
        self._observed = observed
        self._all_ranks = all_ranks
        self.timer = Timer(torch.device("cpu"), tracker.guard.time)
        self.phase_times = PhaseTimes()

    def forget(self, device: torch.device) -> None:
        """Discards the timed iterations, because they were not typical."""
        self.timer = Timer(device, self.timer.hook_time)

    def prepare(self, device: torch.device) -> None:
        """Prepares the timing of iterations on this device."""
        self.timer = Timer(device, self.timer.hook_time)
        self.phase_times = PhaseTimes()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one. `now_ns` is a time of `perf_counter_ns`."""
        timer = self.timer
        timer.end(now_ns)
        self.phase_times.iteration_ended()
        self._tracker.host.timed(timer.count)
        self._observed.query_gpu(now_ns)
        maximum = self.requested.timed_at_most
        if timer.count < self.requested.timed or (maximum is not None and self._goes_on(maximum)):
            timer.begin()
            return False
        timer.finish()
        return True

    def _goes_on(self, maximum: int) -> bool:
        """Whether another iteration is timed. If one rank needs more, all of them continue."""
        return self._all_ranks("more", int(more_are_timed(self.timer.host_ns, maximum))) > 0

    def phases_json(self) -> dict[str, list[int]]:
        """Returns `iterations.timed_phases` for the manifest."""
        # On a GPU, the host runs ahead of the work that it launches.
        on_cpu = self.timer.device.type == "cpu"
        return self.phase_times.json(self.timer.count) if on_cpu else {}
