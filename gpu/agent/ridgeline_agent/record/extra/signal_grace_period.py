"""Waits for a stronger signal of the iterations than module calls.

Reinforcement learning plays hundreds of steps before a training step, and a loss may call its model
for each sample. By then a recording would be finished, of the wrong loop.
"""

from __future__ import annotations

_MAX_SECONDS = 15.0


class SignalGracePeriod:
    """Extra iterations in which a stronger signal may come. Begins at `now_ns` of
    `perf_counter_ns`.
    """

    def __init__(self, seconds_left: float | None, now_ns: int) -> None:
        seconds = _MAX_SECONDS if seconds_left is None else min(_MAX_SECONDS, seconds_left / 4)
        self._until_ns = now_ns + int(seconds * 1e9)

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether the time is over. `now_ns` is a time of `perf_counter_ns`."""
        return now_ns >= self._until_ns

    def stop(self) -> None:
        """Does nothing, because nothing was changed."""
