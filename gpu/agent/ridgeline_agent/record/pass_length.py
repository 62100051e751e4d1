"""Counts the iterations in a pass of a loop whose inner loops have no known length.

    for epoch in range(10):
        for batch in buffer.batches():
            ...

The source has the number of passes, and the program shows how long one takes.
"""

from __future__ import annotations

import ast
import types

from ..iterations.rhythm import Round
from ..program.sources import Sources
from .rounds import index_of_pass, repeated_loop, round_of


class PassLength:
    """Observes the ends of consecutive iterations until the round of the loops is known."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._loop: ast.For | None = None
        self._code: types.CodeType | None = None
        self._is_over = False
        self._frame = 0
        self._index = 0
        # How many iterations of the current pass have ended; None if it began earlier.
        self._count: int | None = None

    def iteration_ended(self, frame: types.FrameType | None) -> Round | None:
        """Returns the round of the loops around `frame`, once a whole pass has been observed."""
        if self._is_over:
            return None
        if self._loop is None:
            self._begin(frame)
            return None
        around = frame
        while around is not None and around.f_code is not self._code:
            around = around.f_back
        index = None if around is None else index_of_pass(self._loop, around)
        if index is None:
            self._is_over = True
            return None
        length = self._next_index(index, id(around))
        if length is None:
            return None
        self._is_over = True
        return round_of(frame, self._sources, length)

    def _begin(self, frame: types.FrameType | None) -> None:
        found = repeated_loop(frame, self._sources)
        if found is None:
            self._is_over = True
            return
        self._loop, around = found
        self._code, self._frame = around.f_code, id(around)
        self._index = index_of_pass(self._loop, around) or 0

    def _next_index(self, index: int, frame: int) -> int | None:
        """Returns the number of iterations in the pass that has ended, if all were observed."""
        is_same = frame == self._frame and index == self._index
        is_next = frame == self._frame and index == self._index + 1
        ended = self._count if is_next else None
        self._frame, self._index = frame, index
        if is_same:
            self._count = None if self._count is None else self._count + 1
        else:
            self._count = 1 if is_next or index == 0 else None
        return ended
