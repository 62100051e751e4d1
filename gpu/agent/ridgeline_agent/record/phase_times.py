"""The time of the backward pass and the optimizer in the timed iterations.

These run without a profiler. Profiling slows a forward pass of many small modules down more than an
optimizer step, so the profiled iterations alone would show wrong shares of the phases.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from ..patches.hooks import BACKWARD, OPTIMIZER

NAMES = {BACKWARD: "backward", OPTIMIZER: "optimizer"}


class PhaseTimes:
    """Sums up the time within phases on one thread. Time belongs to the innermost phase."""

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._open: list[int] = []
        self._since = 0
        self._now: dict[int, int] = {}
        self._all: list[dict[int, int]] = []
        # Set if a step calls the model and runs backward (`step(closure)`), so it is not a single
        # phase.
        self._is_mixed = False

    def entered(self, phase: int) -> None:
        """A phase begins."""
        self._charge()
        self._is_mixed |= phase == BACKWARD and OPTIMIZER in self._open
        self._open.append(phase)

    def left(self, phase: int) -> None:
        """The phase ended, together with everything that an error left open inside."""
        if phase not in self._open:
            return
        self._charge()
        while self._open.pop() != phase:
            pass

    def iteration_ended(self) -> None:
        """An iteration ended; the following time belongs to the next one."""
        self._charge()
        self._all.append(self._now)
        self._now = {}

    def json(self, iterations: int) -> dict[str, list[int]]:
        """Returns `iterations.timed_phases` for the manifest, given the number of iterations."""
        if self._is_mixed or len(self._all) != iterations:
            return {}
        times = {name: [one.get(phase, 0) for one in self._all] for phase, name in NAMES.items()}
        return {name: ns for name, ns in times.items() if any(ns)}

    def _charge(self) -> None:
        now = self._clock()
        if self._open:
            phase = self._open[-1]
            self._now[phase] = self._now.get(phase, 0) + now - self._since
        self._since = now
