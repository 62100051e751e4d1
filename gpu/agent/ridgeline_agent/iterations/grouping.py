"""What the iterations of a program were that ended after a few signals.

While a program runs, a better signal may still come, and a few signals show no period. Once it has
ended, what it did is all that there is: a single forward pass is an iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# More signals than these are not looked at. A program that gives more has enough iterations.
MOST_SIGNALS = 256


@dataclass(frozen=True)
class Grouping:
    """How signals make iterations.

    Args:
        found_by: The kind of signal.
        first: Signals before the first repetition, such as a forward pass that shows the model's
            shapes. They count as one iteration.
        every: Signals in each iteration.
        count: Iterations.
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
    """Groups the signals of one kind: `symbols` are the first of all that were `seen`.

    What repeats is an iteration: first by who gave a signal and from which line, then by who gave
    it. Where nothing repeats, all of it is one iteration.
    """
    # A backward pass is known by its line only.
    givers = [] if found_by == "backward" else _givers(symbols)
    first, every = known or _repetition(symbols) or _repetition(givers) or (0, seen)
    every = max(every, 1)
    return Grouping(found_by, first, every, (1 if first else 0) + (seen - first) // every)


def _repetition(symbols: Sequence[Hashable]) -> tuple[int, int] | None:
    """Signals before what repeats and in each repetition, with at least two of these in the later
    half.
    """
    count = len(symbols)
    for first in range(count // 2 + 1):
        for every in range(1, (count - first) // 2 + 1):
            if all(symbols[i] == symbols[i - every] for i in range(first + every, count)):
                return first, every
    return None


def _givers(symbols: Sequence[Hashable]) -> Sequence[Hashable]:
    """The modules or optimizers, without the lines."""
    if all(isinstance(symbol, tuple) and len(symbol) == 2 for symbol in symbols):
        return [symbol[0] for symbol in symbols if isinstance(symbol, tuple)]
    return []
