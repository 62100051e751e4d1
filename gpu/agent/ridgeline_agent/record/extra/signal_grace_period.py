"""Waits for a better signal of the iterations than calls of modules.

Reinforcement learning plays hundreds of steps before it learns from them, and a loss may call its
model for each sample. By then all of a recording is made, of the wrong loop.
"""

from __future__ import annotations

_MOST_SECONDS = 15.0


class SignalGracePeriod:
    """Iterations after the profiled ones, for a better signal to come. It begins at `now_ns` of
    `perf_counter_ns`.
    """

    def __init__(self, seconds_left: float | None, now_ns: int) -> None:
        seconds = _MOST_SECONDS if seconds_left is None else min(_MOST_SECONDS, seconds_left / 4)
        self._until_ns = now_ns + int(seconds * 1e9)

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether the time is over. The time is that of `perf_counter_ns`."""
        return now_ns >= self._until_ns

    def stop(self) -> None:
        """Nothing has been changed."""
