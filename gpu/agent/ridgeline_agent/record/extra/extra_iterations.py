"""Extra iterations after the profiled ones, for one purpose after another.

All of them come after what was requested, because a program may have no more iterations.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from ...iterations.finder import IterationFinder
from ...iterations.rhythm import Round
from ...program.sources import Sources
from ...protocol.spec import RunSpec
from ..line_clock import EventLog
from ..observed.collector import Observed
from ..observed.fast_lines import FastLines, fast_lines
from ..observed.line_times import LineTimes, iterations_to_time, seconds_left
from ..pass_length import PassLength
from ..phase_times import PhaseTimes
from ..rounds import round_of
from ..switched_off import Turns, rounds
from ..timing import Timer
from .more_times import PROFILED_FOR_TIMES, MoreTimes, are_quick, is_quick_round
from .signal_grace_period import SignalGracePeriod
from .whole_periods import is_slow_one, iterations_to_wait, whole_periods

# Counts one rank in a sum over ranks of the iterations that they want. Larger than any sum of
# iterations.
_ONE_RANK = 1 << 32
# What is said not to be known if it fails.
_LOOPS = "the length of its loops"


class _Purpose(Protocol):
    """The purpose of some extra iterations."""

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether it was the last one. `now_ns` is a time of `perf_counter_ns`."""

    def stop(self) -> None:
        """The program has ended, or that was the last iteration."""


class ExtraIterations:
    """Runs iterations after the profiled ones.

    Args:
        timer: The timed iterations. More iterations that are timed replace them.
        profiled_ns: Returns the times of the profiled iterations whose memory was observed.
        profile_again: Profiles this number of iterations, after waiting for some, to replace those
            that were profiled.
        profiled_log: The line log of the profiled iterations.
        all_ranks: Waits for all ranks and returns the sum of their numbers.
        tolerating: Calls something optional.
        give_up: Called in another thread when an iteration takes too long; None if the program is
            always waited for.
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
        profiled_ns: Callable[[], Sequence[int]],
        profile_again: Callable[[int, int], _Purpose],
        profiled_log: EventLog,
        all_ranks: Callable[[str, int], int],
        tolerating: Callable[..., Any],
        give_up: Callable[[], None] | None,
    ) -> None:
        self.timer = timer
        self.phase_times = phase_times
        self._spec = spec
        self._began_ns = began_ns
        self._sources = sources
        self._observed = observed
        self._finder = finder
        self._profiled_ns = profiled_ns
        self._profile_again = profile_again
        self._profiled_log = profiled_log
        self._all_ranks = all_ranks
        self._tolerating = tolerating
        self._give_up = give_up
        self._limit: threading.Timer | None = None
        self._current: _Purpose | None = None
        self._timed_more = False
        self._purposes: Iterator[Callable[[], _Purpose | None]] = iter(
            (
                self._wait_for_better_signal,
                self._time_more,
                self._profile_whole_periods,
                self._profile_typical,
                self._take_turns,
                self._time_lines,
                self._time_fast_lines,
            )
        )

    @property
    def awaited_round(self) -> Round | None:
        """The round of loops that is being timed; None if none is."""
        purpose = self._current
        return purpose.timer.round if isinstance(purpose, MoreTimes) else None

    @property
    def more_times(self) -> MoreTimes | None:
        """The purpose that times iterations again, while it does."""
        purpose = self._current
        return purpose if isinstance(purpose, MoreTimes) and purpose.is_timing else None

    def goes_on(self) -> bool:
        """Starts the next purpose. Returns whether there is one."""
        self.stop()
        purposes = (begin() for begin in self._purposes)
        self._current = next((purpose for purpose in purposes if purpose is not None), None)
        return self._current is not None

    def iteration_ended(self, now_ns: int) -> bool:
        """Returns whether another iteration is needed."""
        purpose = self._current
        if purpose is None:
            return False
        is_last = purpose.iteration_ended(now_ns)
        if not is_last:
            self._limit_round(purpose)
        return not is_last or self.goes_on()

    def stop(self) -> None:
        """Ends the current purpose. Always call it."""
        purpose, self._current = self._current, None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if purpose is None:
            return
        self._tolerating("the iterations after the profiled ones", purpose.stop)
        # The first timing was cold, but is better than only a few iterations.
        if isinstance(purpose, MoreTimes) and purpose.timer.count >= self.timer.count:
            self.timer, self.phase_times = purpose.timer, purpose.phase_times
            self._timed_more = True

    def _wait_for_better_signal(self) -> _Purpose | None:
        wanted = self._spec.rank is None and self._finder.may_be_better
        return SignalGracePeriod(self._seconds_left(), perf_counter_ns()) if wanted else None

    def _time_more(self) -> _Purpose | None:
        # Profilers that had to be stopped for ours belong to the iterations that were timed before.
        was_ended = any(switch.on is None for switch in self._observed.switches)
        quick = are_quick(self.timer.host_ns)
        is_settled = self.timer.rhythm().is_settled
        # On a GPU, a longer block is only timed if iterations are fast.
        is_settled |= self.timer.device.type == "cuda"
        if not _may_add(self._spec) or was_ended:
            return None
        of_loops = self._tolerating(_LOOPS, round_of, sys._getframe(), self._sources)
        is_unknown = of_loops is None
        if not is_quick_round(of_loops, self.timer.host_ns):
            of_loops = None
        wanted = quick or not is_settled or of_loops is not None
        if not wanted:
            return None
        passes = PassLength(self._sources)

        def learn_round() -> Round | None:
            found: Round | None = self._tolerating(_LOOPS, passes.iteration_ended, sys._getframe())
            return found

        learn = learn_round if is_unknown else None
        device, hook_time = self.timer.device, self.timer.hook_time
        more = MoreTimes(device, hook_time, quick, of_loops, learn, self._seconds_left())
        self._limit_round(more)
        return more

    def _limit_round(self, purpose: _Purpose) -> None:
        """Gives up on a round of loops that takes too long."""
        seconds = purpose.longest_seconds if isinstance(purpose, MoreTimes) else None
        if seconds is None or self._limit is not None or self._give_up is None:
            return
        self._limit = threading.Timer(seconds, self._give_up)
        self._limit.daemon = True
        self._limit.start()

    def _profile_whole_periods(self) -> _Purpose | None:
        times_ns, watched = self.timer.wall_ns(), self._spec.iterations.profiled
        found = self.timer.rhythm()
        if found.period is None or not _may_add(self._spec):
            return None
        minimum = watched + (PROFILED_FOR_TIMES if are_quick(self.timer.host_ns) else 0)
        wanted = whole_periods(found.period, minimum, times_ns, self._seconds_left())
        # The first timing comes before the profiled iterations, a second one after them.
        following = len(times_ns) if self._timed_more else len(times_ns) + minimum
        measured = following - minimum + watched - 1
        is_as_good = (
            wanted == minimum and not self._timed_more and measured % found.period != found.place
        )
        if wanted == 0 or is_as_good:
            return None
        return self._profile_again(wanted, iterations_to_wait(found, following, watched))

    def _profile_typical(self) -> _Purpose | None:
        """Profiles again if the iteration that represents all of them had an evaluation in it."""
        if self.timer.rhythm().period is not None or not _may_add(self._spec):
            return None
        profiled_ns = self._profiled_ns()
        if not is_slow_one(profiled_ns, self.timer.host_ns, self._seconds_left()):
            return None
        for_times = PROFILED_FOR_TIMES if are_quick(self.timer.host_ns) else 0
        return self._profile_again(len(profiled_ns) + for_times, 0)

    def _take_turns(self) -> _Purpose | None:
        observed, timed_ns = self._observed, self.timer.wall_ns()
        is_single_process = self._spec.rank is None
        wanted = (
            rounds(timed_ns, observed.switches, self._seconds_left()) if is_single_process else 0
        )
        if wanted == 0:
            return None
        turns = Turns(observed.switches, timed_ns, self.timer.device, wanted)
        self._tolerating("settings left enabled", turns.start)
        observed.turns = turns
        return turns

    def _time_lines(self) -> _Purpose | None:
        wanted = self._iterations_to_time()
        if wanted == 0:
            return None
        lines = LineTimes(self._sources, wanted, self._spec.limits.line_events)
        self._tolerating("the times of lines", lines.start)
        self._observed.line_times = lines
        return lines

    def _time_fast_lines(self) -> _Purpose | None:
        # A few iterations do not show their share of occasionally slow ones.
        if not _may_add(self._spec) or self.timer.rhythm().slow:
            return None
        lines: FastLines | None = self._tolerating(
            "the time of fast lines",
            fast_lines,
            self._profiled_log,
            self._sources,
            self.timer.wall_ns(),
            self._seconds_left(),
            self._spec.limits.line_events,
        )
        if lines is not None:
            self._tolerating("the time of fast lines", lines.start)
            self._observed.fast_lines = lines
        return lines

    def _iterations_to_time(self) -> int:
        """Returns how many more iterations are needed to see which lines vary: the mean over the
        ranks that want any, because all ranks must run equally many.
        """
        wanted = iterations_to_time(self.timer.wall_ns(), self._seconds_left())
        total = self._all_ranks("iterations", (wanted + _ONE_RANK) if wanted else 0)
        ranks, total = divmod(total, _ONE_RANK)
        return total // ranks if ranks else 0

    def _seconds_left(self) -> float | None:
        return seconds_left(self._spec.limits.seconds, self._began_ns)


def is_quick(spec: RunSpec, timer: Timer) -> bool:
    """Whether to run more iterations than requested, because they cost nothing."""
    return _may_add(spec) and are_quick(timer.host_ns)


def _may_add(spec: RunSpec) -> bool:
    """Whether more iterations than requested may run. Ranks would have to agree on the number."""
    return spec.iterations.timed_at_most is not None and spec.rank is None
