"""The time of an iteration without debugging settings that were left on: `observed.switched_off` of
the manifest.

Anomaly detection and the program's own profiler slow everything down a little, so no part of a
recording shows their cost. After the profiled iterations, some more run in turns: unchanged, and
with one of them switched off. Turns are used because a machine's speed changes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import torch

from .device import synchronize

_MIN_ROUNDS, _MAX_ROUNDS = 3, 10
_ENOUGH_NS = 500_000_000
_MAX_NS = 10_000_000_000


@dataclass(frozen=True)
class Switch:
    """Turns something in the program off and on again. Both are idempotent."""

    name: str
    off: Callable[[], None]
    # None if it has been off for good since the profiled iterations.
    on: Callable[[], None] | None


def anomaly_detection() -> Switch:
    """Returns the switch of autograd's anomaly detection."""
    checks_nan = torch.is_anomaly_check_nan_enabled()
    return Switch(
        "anomaly",
        lambda: torch.set_anomaly_enabled(False),
        lambda: torch.set_anomaly_enabled(True, checks_nan),
    )


def rounds(timed_ns: list[int], switches: list[Switch], seconds_left: float | None) -> int:
    """Returns how often each turn runs; 0 if there are none, or if all would take too long."""
    if not timed_ns or not switches:
        return 0
    round_ns = len(_turns(switches)) * statistics.fmean(timed_ns)
    room = _MAX_NS if seconds_left is None else min(_MAX_NS, seconds_left * 1e9 / 4)
    if _MIN_ROUNDS * round_ns > room:
        return 0
    return max(_MIN_ROUNDS, min(_MAX_ROUNDS, int(_ENOUGH_NS / round_ns)))


def _turns(switches: list[Switch]) -> list[Switch | None]:
    """Returns what is off in each turn of a round."""
    return [None, *(one for one in switches if one.on is not None)]


class Turns:
    """Times single iterations, which are synchronized at both ends on a GPU."""

    def __init__(
        self, switches: list[Switch], timed_ns: list[int], device: torch.device, rounds: int
    ) -> None:
        self._switches = switches
        self._timed_ns = timed_ns
        self._device = device
        self._turns = _turns(switches) * rounds
        self._took: list[tuple[Switch | None, int]] = []
        self._began_ns = 0

    def start(self) -> None:
        """Starts the first iteration. Call it between two iterations."""
        self._set(self._turns[len(self._took)])
        self._synchronize()
        self._began_ns = perf_counter_ns()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one."""
        self._synchronize()
        self._took.append((self._turns[len(self._took)], perf_counter_ns() - self._began_ns))
        if len(self._took) == len(self._turns):
            self.stop()
            return True
        self.start()
        return False

    def stop(self) -> None:
        """Restores the program's settings, except what cannot be turned on again."""
        self._set(None)

    def json(self) -> list[dict[str, object]]:
        """Returns `observed.switched_off` for the manifest."""
        unchanged = [took for off, took in self._took if off is None]
        switched_off: list[dict[str, object]] = []
        for one in self._switches:
            without = [took for off, took in self._took if off is one]
            with_ns, without_ns = (
                (self._timed_ns, unchanged) if one.on is None else (unchanged, without)
            )
            switched_off.append({"name": one.name, "with_ns": with_ns, "without_ns": without_ns})
        return switched_off

    def _set(self, off: Switch | None) -> None:
        for one in self._switches:
            if one is off:
                one.off()
            elif one.on is not None:
                one.on()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            synchronize()
