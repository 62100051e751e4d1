"""The timing stage: iterations run as they are, and theirs is the time that is reported."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..iterations.tracker import IterationTracker
from ..protocol.spec import RunSpec
from .observed.collector import Observed
from .phase_times import PhaseTimes
from .timing import Timer, more_are_timed


class TimedIterations:
    """The iterations that are timed, and those that were.

    Args:
        all_ranks: The sum of what every rank gives, which all wait for.
    """

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        observed: Observed,
        all_ranks: Callable[[str, int], int],
    ) -> None:
        self._asked = spec.iterations
        self._tracker = tracker
        self._observed = observed
        self._all_ranks = all_ranks
        self.timer = Timer(torch.device("cpu"))
        self.phase_times = PhaseTimes()

    def forget(self, device: torch.device) -> None:
        """What was timed were no iterations as the others are."""
        self.timer = Timer(device)

    def prepare(self, device: torch.device) -> None:
        """Iterations on this device are about to be timed."""
        self.timer = Timer(device)
        self.phase_times = PhaseTimes()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them. The time is that of `perf_counter_ns`."""
        timer = self.timer
        timer.end(now_ns)
        self.phase_times.iteration_ended()
        self._tracker.host.timed(timer.count)
        self._observed.look_at_gpu(now_ns)
        most = self._asked.timed_at_most
        if timer.count < self._asked.timed or (most is not None and self._goes_on(most)):
            timer.begin()
            return False
        timer.finish()
        return True

    def _goes_on(self, most: int) -> bool:
        """Whether another iteration is timed. Where one rank has a reason to, all of them go on."""
        return self._all_ranks("more", int(more_are_timed(self.timer.host_ns, most))) > 0

    def phases_json(self) -> dict[str, list[int]]:
        """`iterations.timed_phases` of the manifest."""
        # On a GPU the host runs ahead of what it starts.
        on_cpu = self.timer.device.type == "cpu"
        return self.phase_times.json(self.timer.count) if on_cpu else {}
