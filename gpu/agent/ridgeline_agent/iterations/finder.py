"""Finds the iterations of a training loop without annotations.

A running program gives three signals: the end of an optimizer step, of a backward pass, and of an
outermost module call. The strongest signal that a program has determines its iterations, and the
period of the signals' sources determines how many of them form one iteration: a GAN takes two or
three optimizer steps per iteration.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Hashable

from .grouping import MAX_SIGNALS, Grouping, group

OPTIMIZER, BACKWARD, MODULE, PROVIDER = "optimizer", "backward", "module", "provider"
_RANK = {PROVIDER: 3, OPTIMIZER: 2, BACKWARD: 1, MODULE: 0}

# A Wasserstein GAN steps its critic five times before its generator, so wait a little longer than
# that for an optimizer that was created but has not stepped yet.
_STEPS_TO_WAIT = 8
# After so many backward passes, an optimizer is assumed not to step. Gradient accumulation has
# fewer. L-BFGS evaluates its closure 25 times by default, and the closure may differentiate several
# times; a step of more evaluations may be the whole training.
_BACKWARDS_TO_WAIT = 512
# A training script may call its model before training, to print its shapes or to validate.
_CALLS_TO_WAIT = 64
_CALLS_TO_WAIT_WITHOUT_OPTIMIZER = 8
_CALLS_TO_WAIT_IN_EVALUATION = 3
# Longer periods are not considered.
_MAX_PERIOD = 64
_MAX_CONTRADICTIONS = 4


class Verdict(enum.Enum):
    """The meaning of a signal for the iterations."""

    NOTHING = enum.auto()
    BOUNDARY = enum.auto()
    # The previous iterations were wrong. This is the first boundary of a better guess.
    RESTART = enum.auto()


class Period:
    """The period of a sequence of symbols: the shortest that nothing contradicts so far."""

    def __init__(self) -> None:
        self.length: int | None = None
        self._symbols: list[Hashable] = []
        self._place = 0
        self._contradictions = 0

    def add(self, symbol: Hashable, more_to_come: bool) -> Verdict:
        """Adds the next symbol. With `more_to_come`, no period is guessed yet."""
        symbols = self._symbols
        symbols.append(symbol)
        if self.length is None:
            if more_to_come and len(symbols) < _STEPS_TO_WAIT:
                return Verdict.NOTHING
            self.length = _shortest_period(symbols)
            self._place = len(symbols) % self.length
            return Verdict.NOTHING if self._place else Verdict.BOUNDARY
        if self._contradictions < _MAX_CONTRADICTIONS and symbol != symbols[-1 - self.length]:
            self._contradictions += 1
            if self._contradictions == _MAX_CONTRADICTIONS:
                # No visible order (conditional steps): each step is an iteration.
                self.length = 1
            else:
                del symbols[:-_MAX_PERIOD]
                self.length = _shortest_period(symbols)
            self._place = 0
            return Verdict.RESTART
        del symbols[: -2 * _MAX_PERIOD]
        self._place = (self._place + 1) % self.length
        return Verdict.NOTHING if self._place else Verdict.BOUNDARY


class KnownPeriod(Period):
    """The period from an earlier run of the same program: the number of signals before the first
    iteration, which count as one, and the number in each.
    """

    def __init__(self, first: int, every: int) -> None:
        super().__init__()
        self.length = every
        self._left = first or every

    def add(self, symbol: Hashable, more_to_come: bool) -> Verdict:
        """Counts the signal, whatever its symbol."""
        self._left -= 1
        if self._left > 0:
            return Verdict.NOTHING
        self._left = self.length or 1
        return Verdict.BOUNDARY


def _shortest_period(symbols: list[Hashable]) -> int:
    count = len(symbols)
    for period in range(1, count):
        if all(symbols[i] == symbols[i - period] for i in range(period, count)):
            return period
    return count


class IterationFinder:
    """Turns the program's signals into iteration boundaries."""

    def __init__(self, wanted: str | None, signals: tuple[int, int] | None = None) -> None:
        self.found_by = wanted
        self.seen: Counter[str] = Counter()
        self._wanted = wanted
        self._signals = signals
        self._period = self._new_period()
        self._symbols: dict[str, list[Hashable]] = {}
        self._optimizer_created = self._training_expected = self._steps_expected = False
        # Module calls before the first optimizer was created.
        self._calls_before = 0
        self._stepped: set[Hashable] = set()
        self._training = True
        self._within_step = False
        self._hurried_after: float | None = None

    @property
    def decided(self) -> bool:
        """Whether the kind of signal that determines the iterations is known."""
        return self.found_by is not None

    @property
    def has_trained(self) -> bool:
        """Whether there was a backward pass or an optimizer step."""
        return self.seen[BACKWARD] > 0 or self.seen[OPTIMIZER] > 0

    @property
    def may_be_better(self) -> bool:
        """Whether module calls determine the iterations only until an optimizer steps."""
        is_a_guess = self.found_by == MODULE and self._wanted is None
        return is_a_guess and (self._optimizer_created or self._training_expected)

    @property
    def signals_per_iteration(self) -> int:
        """The number of signals that form an iteration."""
        return self._period.length or 1

    @property
    def seconds_waited(self) -> float | None:
        """If module calls determine the iterations because no step came in time: that time."""
        return self._hurried_after if self.may_be_better else None

    def optimizer_created(self) -> None:
        """An optimizer was constructed."""
        if not self._optimizer_created:
            self._calls_before = self.seen[MODULE]
        self._optimizer_created = True

    def expect_training(self) -> None:
        """The program has code that trains. It may use modules before that, to make its data."""
        self._training_expected = True

    def expect_steps(self) -> None:
        """The program has code that steps an optimizer, which may be created later."""
        self._steps_expected = True

    def hurry(self, seconds: float) -> None:
        """No step came within `seconds` of the first module call: fewer signals suffice."""
        self._hurried_after = seconds

    def stepped_within(self, optimizer: Hashable) -> None:
        """An optimizer has stepped within another one's step, or within a backward pass."""
        self._stepped.add(optimizer)

    def stepped(self, optimizer: Hashable, place: Hashable, alive: set[Hashable]) -> Verdict:
        """An optimizer step has ended; `place` is the line that called it.

        `alive` are the existing optimizers: those that have not stepped yet may still do so.
        """
        self._stepped.add(optimizer)
        self._within_step = False
        return self._signal(OPTIMIZER, (optimizer, place), not alive <= self._stepped)

    def stepped_in_backward(self, place: Hashable, alive: set[Hashable]) -> Verdict:
        """An outermost backward pass has ended, in whose hooks optimizers stepped."""
        self._within_step = False
        if self._wanted == BACKWARD:
            return self._signal(BACKWARD, place, False)
        return self._signal(OPTIMIZER, place, not alive <= self._stepped)

    def went_backward(self, place: Hashable, within_step: bool = False) -> Verdict:
        """An outermost backward pass has ended, possibly within an optimizer step."""
        self._within_step = within_step
        return self._signal(BACKWARD, place, False)

    def called(self, module: Hashable, place: Hashable, training: bool) -> Verdict:
        """An outermost module call has ended. `training` means that a backward pass may follow."""
        self._training = training
        return self._signal(MODULE, (module, place), False)

    def replayed(
        self, strongest_signal: str, symbol: Hashable, optimizers: set[int], alive: set[Hashable]
    ) -> Verdict:
        """A CUDA graph was replayed; `strongest_signal` is the strongest signal that it captured.

        `optimizers` are those whose steps it captured, `alive` the existing ones.
        """
        if strongest_signal == OPTIMIZER:
            self._stepped |= optimizers
            return self._signal(OPTIMIZER, symbol, not alive <= self._stepped)
        if strongest_signal == BACKWARD:
            return self._signal(BACKWARD, symbol, False)
        return self._signal(MODULE, symbol, False)

    def reset(self) -> None:
        """Discards all signals so far, because they were the warm-up of a capture."""
        self.found_by = self._wanted
        self.seen.clear()
        self._calls_before = 0
        self._hurried_after = None
        self._stepped.clear()
        self._symbols.clear()
        self._period = self._new_period()

    def grouping_at_end(self) -> Grouping | None:
        """Returns the grouping into iterations after the program has ended, when no stronger signal
        can come. Returns None if there was no signal.
        """
        sources = sorted(self._symbols, key=lambda source: -_RANK[source])
        if self._wanted is not None:
            sources = [source for source in sources if source == self._wanted]
        if not sources:
            return None
        return group(sources[0], self._symbols[sources[0]], self.seen[sources[0]], self._signals)

    def ended(self) -> Verdict:
        """A provider's iteration has ended."""
        return self._signal(PROVIDER, None, False)

    def _signal(self, source: str, symbol: Hashable, more_to_come: bool) -> Verdict:
        self.seen[source] += 1
        symbols = self._symbols.setdefault(source, [])
        if len(symbols) < MAX_SIGNALS:
            symbols.append(symbol)
        if self._wanted is not None and source != self._wanted:
            return Verdict.NOTHING
        restarted = False
        if source != self.found_by:
            if self.found_by is not None and _RANK[source] < _RANK[self.found_by]:
                return Verdict.NOTHING
            if self.seen[source] < self._signals_needed(source):
                return Verdict.NOTHING
            restarted = self.found_by is not None
            self.found_by = source
            self._period = self._new_period()
        verdict = self._period.add(symbol, more_to_come)
        if restarted:
            # Even if this signal does not complete an iteration, the previous ones were wrong.
            return Verdict.RESTART
        return verdict

    def _new_period(self) -> Period:
        return Period() if self._signals is None else KnownPeriod(*self._signals)

    def _signals_needed(self, source: str) -> int:
        """Returns how many signals of this kind, without a stronger one, are needed to trust it."""
        is_hurried = self._hurried_after is not None
        if source == BACKWARD:
            may_step = self._optimizer_created or self._steps_expected or self._within_step
            return _BACKWARDS_TO_WAIT if may_step and not is_hurried else 1
        if source == MODULE and not is_hurried:
            # An agent plays many moves before its first training step. A closure calls its model.
            if self._training_expected or self._within_step:
                return sys.maxsize
            if self._optimizer_created:
                return self._calls_before + _CALLS_TO_WAIT
        if source == MODULE:
            if self._training:
                return _CALLS_TO_WAIT_WITHOUT_OPTIMIZER
            return _CALLS_TO_WAIT_IN_EVALUATION
        return 1
