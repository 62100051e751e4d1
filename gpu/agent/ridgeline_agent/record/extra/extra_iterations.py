"""Iterations after the profiled ones, where more of them show more: one purpose after another.

All of them come after what was asked for, since a program may have no more iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, Protocol

from ...iterations.finder import IterationFinder
from ...iterations.rhythm import rhythm
from ...program.sources import Sources
from ...protocol.spec import RunSpec
from ..observed.collector import Observed
from ..observed.line_times import LineTimes, iterations_to_look_at, seconds_left
from ..phase_times import PhaseTimes
from ..switched_off import Turns, rounds
from ..timing import Timer
from .more_times import PROFILED_FOR_TIMES, MoreTimes, are_quick
from .signal_grace_period import SignalGracePeriod
from .whole_periods import iterations_to_wait, whole_periods

# One rank in a sum over ranks of how many iterations they want: more than these add up to.
_THAT_WANTS = 1 << 32


class _Purpose(Protocol):
    """What some iterations are run for."""

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last of them. The time is that of `perf_counter_ns`."""

    def stop(self) -> None:
        """The program has ended, or it was the last."""


class ExtraIterations:
    """Runs iterations after the profiled ones.

    Args:
        timer: What was timed; what is timed once more replaces it.
        profile_again: Profiles so many iterations in place of those that were profiled, after so
            many others.
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
        profile_again: Callable[[int, int], _Purpose],
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
        self._profile_again = profile_again
        self._all_ranks = all_ranks
        self._tolerating = tolerating
        self._under_way: _Purpose | None = None
        self._timed_more = False
        self._purposes: Iterator[Callable[[], _Purpose | None]] = iter(
            (
                self._wait_for_better_signal,
                self._time_more,
                self._profile_whole_periods,
                self._take_turns,
                self._time_lines,
            )
        )

    @property
    def more_times(self) -> MoreTimes | None:
        """What times iterations once more, while it does."""
        purpose = self._under_way
        return purpose if isinstance(purpose, MoreTimes) and purpose.is_timing else None

    def goes_on(self) -> bool:
        """Goes on to what tells more; returns whether there is any."""
        self.stop()
        purposes = (begin() for begin in self._purposes)
        self._under_way = next((purpose for purpose in purposes if purpose is not None), None)
        return self._under_way is not None

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether another is needed."""
        purpose = self._under_way
        return purpose is not None and (not purpose.iteration_ended(now_ns) or self.goes_on())

    def stop(self) -> None:
        """Ends what is under way. Call it in any case."""
        purpose, self._under_way = self._under_way, None
        if purpose is None:
            return
        self._tolerating("the iterations after the profiled ones", purpose.stop)
        # What was timed first is cold, but better than a few.
        if isinstance(purpose, MoreTimes) and purpose.timer.count >= self.timer.count:
            self.timer, self.phase_times = purpose.timer, purpose.phase_times
            self._timed_more = True

    def _wait_for_better_signal(self) -> _Purpose | None:
        wanted = self._spec.rank is None and self._finder.may_be_better
        return SignalGracePeriod(self._seconds_left(), perf_counter_ns()) if wanted else None

    def _time_more(self) -> _Purpose | None:
        # What had to be ended for the profiler belongs to the iterations that were timed before.
        was_ended = any(switch.on is None for switch in self._observed.switches)
        quick, is_settled = are_quick(self.timer.host_ns), rhythm(self.timer.wall_ns()).is_settled
        # A longer block is only timed on a GPU where it is quick.
        is_settled |= self.timer.device.type == "cuda"
        wanted = _may_add(self._spec) and (quick or not is_settled) and not was_ended
        return MoreTimes(self.timer.device, quick, self._seconds_left()) if wanted else None

    def _profile_whole_periods(self) -> _Purpose | None:
        times_ns, watched = self.timer.wall_ns(), self._spec.iterations.profiled
        found = rhythm(times_ns)
        if found.period is None or not _may_add(self._spec):
            return None
        least = watched + (PROFILED_FOR_TIMES if are_quick(self.timer.host_ns) else 0)
        wanted = whole_periods(found.period, least, times_ns, self._seconds_left())
        # What was timed first comes before the profiled ones, what was timed once more behind them.
        following = len(times_ns) if self._timed_more else len(times_ns) + least
        measured = following - least + watched - 1
        is_as_good = (
            wanted == least and not self._timed_more and measured % found.period != found.place
        )
        if wanted == 0 or is_as_good:
            return None
        return self._profile_again(wanted, iterations_to_wait(found, following, watched))

    def _take_turns(self) -> _Purpose | None:
        observed, timed_ns = self._observed, self.timer.wall_ns()
        is_alone = self._spec.rank is None
        wanted = rounds(timed_ns, observed.switches, self._seconds_left()) if is_alone else 0
        if wanted == 0:
            return None
        turns = Turns(observed.switches, timed_ns, self.timer.device, wanted)
        self._tolerating("settings left enabled", turns.start)
        observed.turns = turns
        return turns

    def _time_lines(self) -> _Purpose | None:
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
    return _may_add(spec) and are_quick(timer.host_ns)


def _may_add(spec: RunSpec) -> bool:
    """Whether more iterations may run than were asked for. Ranks would have to agree how many."""
    return spec.iterations.timed_at_most is not None and spec.rank is None
