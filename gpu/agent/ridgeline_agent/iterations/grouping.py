"""Groups signals into iterations for a program that ended after a few signals.

While a program runs, a stronger signal may still come, and a few signals show no period. After its
end the signals are complete: a single forward pass is an iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# Later signals are ignored. A program with more signals has enough iterations.
MAX_SIGNALS = 256


@dataclass(frozen=True)
class Grouping:
    """How signals form iterations.

    Args:
        found_by: The kind of signal.
        first: Signals before the first repetition, such as a forward pass that prints the model's
            shapes. They count as one iteration.
        every: Signals in each iteration.
        count: Number of iterations.
    """

    found_by: str
    first: int
    every: int
    count: int


def group(
    found_by: str,
    symbols: Sequence[Hashable],
    seen: int,
    known: tuple[int, int] | None = None,
) -> Grouping:
    """Groups the signals of one kind: `symbols` are the first of all `seen` signals.

    A repetition is an iteration: first a repetition of sources and lines, then of sources only.
    Without a repetition, all signals are one iteration.
    """
    # A backward pass is identified only by its line.
    sources = [] if found_by == "backward" else _sources(symbols)
    first, every = known or _repetition(symbols) or _repetition(sources) or (0, seen)
    every = max(every, 1)
    return Grouping(found_by, first, every, (1 if first else 0) + (seen - first) // every)


def _repetition(symbols: Sequence[Hashable]) -> tuple[int, int] | None:
    """Returns the number of signals before the repetition and in each repetition. At least two
    repetitions must be in the later half.
    """
    count = len(symbols)
    for first in range(count // 2 + 1):
        for every in range(1, (count - first) // 2 + 1):
            if all(symbols[i] == symbols[i - every] for i in range(first + every, count)):
                return first, every
    return None


def _sources(symbols: Sequence[Hashable]) -> Sequence[Hashable]:
    """Returns the modules or optimizers, without the lines."""
    if all(isinstance(symbol, tuple) and len(symbol) == 2 for symbol in symbols):
        return [symbol[0] for symbol in symbols if isinstance(symbol, tuple)]
    return []
