"""Iterations after the profiled ones, where these tell more: one way of looking after another.

All of it comes behind what was asked for, since a program may have no more iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .iterations import IterationFinder
from .line_times import LineTimes, iterations_to_look_at, seconds_left
from .more_times import MoreTimes, are_quick
from .observed import Observed
from .patience import Patience
from .phase_times import PhaseTimes
from .sources import Sources
from .spec import RunSpec
from .switched_off import Turns, rounds
from .timing import Timer

# One rank in a sum over ranks of how many iterations they want: more than these add up to.
_THAT_WANTS = 1 << 32


class _Way(Protocol):
    """What some iterations are run for."""

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them. The time is that of `perf_counter_ns`."""

    def stop(self) -> None:
        """The program has ended, or it was the last."""


class Further:
    """Runs iterations after the profiled ones.

    Args:
        timer: What was timed; what is timed once more replaces it.
        all_ranks: The sum of what every rank gives, which all wait for.
        tolerating: Calls what the recording can do without.
    """

    def __init__(
        self,
        spec: RunSpec,
        began_ns: int,
        sources: Sources,
        observed: Observed,
        finder: IterationFinder,
        timer: Timer,
        phase_times: PhaseTimes,
        all_ranks: Callable[[str, int], int],
        tolerating: Callable[..., Any],
    ) -> None:
        self.timer = timer
        self.phase_times = phase_times
        self._spec = spec
        self._began_ns = began_ns
        self._sources = sources
        self._observed = observed
        self._finder = finder
        self._all_ranks = all_ranks
        self._tolerating = tolerating
        self._under_way: _Way | None = None
        self._ways: Iterator[Callable[[], _Way | None]] = iter(
            (self._be_patient, self._time_more, self._take_turns, self._time_lines)
        )

    @property
    def more_times(self) -> MoreTimes | None:
        """What times iterations once more, while it does."""
        way = self._under_way
        return way if isinstance(way, MoreTimes) and way.is_timing else None

    def goes_on(self) -> bool:
        """Goes on to what tells more; returns whether there is any."""
        self.stop()
        ways = (begin() for begin in self._ways)
        self._under_way = next((way for way in ways if way is not None), None)
        return self._under_way is not None

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether another is needed."""
        way = self._under_way
        return way is not None and (not way.iteration_ended(now_ns) or self.goes_on())

    def stop(self) -> None:
        """Ends what is under way. Call it in any case."""
        way, self._under_way = self._under_way, None
        if way is None:
            return
        self._tolerating("the iterations after the profiled ones", way.stop)
        # What was timed first is cold, but better than a few.
        if isinstance(way, MoreTimes) and way.timer.count >= self.timer.count:
            self.timer, self.phase_times = way.timer, way.phase_times

    def _be_patient(self) -> _Way | None:
        wanted = self._spec.rank is None and self._finder.may_be_better
        return Patience(self._seconds_left()) if wanted else None

    def _time_more(self) -> _Way | None:
        # What had to be ended for the profiler belongs to the iterations that were timed before.
        was_ended = any(switch.on is None for switch in self._observed.switches)
        wanted = is_quick(self._spec, self.timer) and not was_ended
        return MoreTimes(self.timer.device) if wanted else None

    def _take_turns(self) -> _Way | None:
        observed, timed_ns = self._observed, self.timer.wall_ns()
        is_alone = self._spec.rank is None
        wanted = rounds(timed_ns, observed.switches, self._seconds_left()) if is_alone else 0
        if wanted == 0:
            return None
        turns = Turns(observed.switches, timed_ns, self.timer.device, wanted)
        self._tolerating("what was left on", turns.start)
        observed.turns = turns
        return turns

    def _time_lines(self) -> _Way | None:
        wanted = self._iterations_to_look_at()
        if wanted == 0:
            return None
        lines = LineTimes(self._sources, wanted, self._spec.limits.line_events)
        self._tolerating("the times of lines", lines.start)
        self._observed.line_times = lines
        return lines

    def _iterations_to_look_at(self) -> int:
        """How many more iterations tell which lines vary; the mean of what those ranks want that
        want any, for all of them have to run as many.
        """
        wanted = iterations_to_look_at(self.timer.wall_ns(), self._seconds_left())
        total = self._all_ranks("iterations", (wanted + _THAT_WANTS) if wanted else 0)
        ranks, total = divmod(total, _THAT_WANTS)
        return total // ranks if ranks else 0

    def _seconds_left(self) -> float | None:
        return seconds_left(self._spec.limits.seconds, self._began_ns)


def is_quick(spec: RunSpec, timer: Timer) -> bool:
    """Whether to look at more iterations than were asked for, since they cost nothing."""
    is_asked = spec.iterations.timed_at_most is not None and spec.rank is None
    return is_asked and are_quick(timer)
