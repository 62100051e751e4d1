"""What an iteration takes without what was left on: `observed.switched_off` of the manifest.

Anomaly detection and a profiler of the program's own slow down everything a little, so no part of
a recording is what they cost. After the profiled iterations some more run by turns: as the program
is, and with one of them switched off. By turns, because a machine becomes slower and faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import torch

from .device import synchronize

_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 10
_ENOUGH_NS = 500_000_000
_MOST_NS = 10_000_000_000


@dataclass(frozen=True)
class Switch:
    """Turns something of the program off and on again; twice is as good as once."""

    name: str
    off: Callable[[], None]
    # Nothing where it is off for good since the profiled iterations.
    on: Callable[[], None] | None


def anomaly_detection() -> Switch:
    """The switch of autograd's search for NaNs."""
    checks_nan = torch.is_anomaly_check_nan_enabled()
    return Switch(
        "anomaly",
        lambda: torch.set_anomaly_enabled(False),
        lambda: torch.set_anomaly_enabled(True, checks_nan),
    )


def rounds(timed_ns: list[int], switches: list[Switch], seconds_left: float | None) -> int:
    """How often each turn is taken; 0 where there is none, or all of them would take too long."""
    if not timed_ns or not switches:
        return 0
    round_ns = len(_turns(switches)) * statistics.fmean(timed_ns)
    room = _MOST_NS if seconds_left is None else min(_MOST_NS, seconds_left * 1e9 / 4)
    if _FEWEST_ROUNDS * round_ns > room:
        return 0
    return max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(_ENOUGH_NS / round_ns)))


def _turns(switches: list[Switch]) -> list[Switch | None]:
    """What is off in each turn of a round."""
    return [None, *(one for one in switches if one.on is not None)]


class Turns:
    """Times single iterations; on a GPU each of them is synchronized at both ends."""

    def __init__(
        self, switches: list[Switch], timed_ns: list[int], device: torch.device, rounds: int
    ) -> None:
        self._switches = switches
        self._timed_ns = timed_ns
        self._device = device
        self._turns = _turns(switches) * rounds
        self._took: list[tuple[Switch | None, int]] = []
        self._begun = 0

    def start(self) -> None:
        """Call it between two iterations."""
        self._set(self._turns[len(self._took)])
        self._synchronize()
        self._begun = perf_counter_ns()

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them."""
        self._synchronize()
        self._took.append((self._turns[len(self._took)], perf_counter_ns() - self._begun))
        if len(self._took) == len(self._turns):
            self.stop()
            return True
        self.start()
        return False

    def stop(self) -> None:
        """All is as the program had it, but for what cannot be turned on again."""
        self._set(None)

    def json(self) -> list[dict[str, object]]:
        """`observed.switched_off` of the manifest."""
        as_it_is = [took for off, took in self._took if off is None]
        switched_off: list[dict[str, object]] = []
        for one in self._switches:
            without = [took for off, took in self._took if off is one]
            with_ns, without_ns = (
                (self._timed_ns, as_it_is) if one.on is None else (as_it_is, without)
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
