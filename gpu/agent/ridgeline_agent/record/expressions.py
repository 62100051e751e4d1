"""The expressions within a line, which the line clock distinguishes.

They are those that run other code: calls, operators such as `@`, subscripts, steps of a `for`. Each
is one instruction, which runs when its operands are there, so its time is without that of its
operands. Expressions are followed only where a statement or a line has several: otherwise the line
says as much.
"""

from __future__ import annotations

import dis
import threading
import types
from collections.abc import Iterator
from typing import Any

from ..program.sources import Sources, indentations


def _opcodes(*names: str) -> frozenset[int]:
    # By name, because each version of Python has other numbers and lacks some.
    return frozenset(dis.opmap[name] for name in names if name in dis.opmap)


_RUNS_CODE = _opcodes(
    "CALL",
    "CALL_KW",
    "CALL_FUNCTION_EX",
    "BINARY_OP",
    "BINARY_SUBSCR",
    "BINARY_SLICE",
    "STORE_SUBSCR",
    "STORE_SLICE",
    "COMPARE_OP",
    "UNARY_NEGATIVE",
    "UNARY_INVERT",
    "FOR_ITER",
)
_ENDS_STATEMENT = _opcodes(
    "STORE_FAST",
    "STORE_NAME",
    "STORE_GLOBAL",
    "STORE_DEREF",
    "STORE_ATTR",
    "POP_TOP",
    "RETURN_VALUE",
)
# More than any training loop has.
_MAX_EXPRESSIONS = 1 << 16

# Line, end line, column and end column; lines from 1, columns in UTF-8 bytes.
Range = tuple[int, int, int, int]


class Expressions:
    """Numbers the expressions of a recording."""

    def __init__(self) -> None:
        self._index: dict[tuple[int, Range], int] = {}
        # Functions whose expressions are not followed any more.
        self._dropped: set[int] = set()
        # Threads of the program may add expressions concurrently.
        self._lock = threading.Lock()

    def of(self, code: types.CodeType, index: int) -> dict[int, int]:
        """Returns the expressions of a function by the offset of their instruction.

        Args:
            index: The function's index among the recording's codes.
        """
        numbers: dict[int, int] = {}
        if index in self._dropped:
            return numbers
        for offset, at in _on_shared_lines(code).items():
            with self._lock:
                if len(self._index) >= _MAX_EXPRESSIONS:
                    break
                numbers[offset] = self._index.setdefault((index, at), len(self._index))
        return numbers

    def drop(self, index: int) -> None:
        """Makes the expressions of a function unknown."""
        self._dropped.add(index)

    def json(self, sources: Sources) -> list[dict[str, object]]:
        """Returns `expressions` for the manifest.

        Columns are counted after the line's indentation, which may change while the line does not.
        """
        codes = sources.codes_json()
        indents: dict[int, list[int]] = {}
        entries: list[dict[str, object]] = []
        for code, (line, end_line, column, end_column) in list(self._index):
            file = int(str(codes[code]["file"]))
            if file not in indents:
                indents[file] = indentations(sources.text(file) or b"")
            of_line = indents[file]
            at = [0, 0, 0, 0]
            # Otherwise the text is not the one that ran.
            is_known = end_line <= len(of_line) and code not in self._dropped
            if is_known:
                first, last = of_line[line - 1], of_line[end_line - 1]
                at = [line, max(column - first, 0), end_line, max(end_column - last, 0)]
            entries.append({"code": code, "range": at})
        return entries


def _on_shared_lines(code: types.CodeType) -> dict[int, Range]:
    """Returns the expressions of a function by the offset of their instruction: those in statements
    and on lines that have several.
    """
    expressions: dict[int, Range] = {}
    # Lines with several expressions, and the only one of the other lines.
    several: set[int] = set()
    single: dict[int, Range] = {}
    for statement in _statements(code):
        found = {offset: at for offset, _, at in statement if at is not None}
        expressions.update(found)
        ranges, lines = set(found.values()), {line for _, line, _ in statement}
        if len(ranges) > 1:
            several |= lines
        elif ranges:
            (only,) = ranges
            several |= {line for line in lines if single.setdefault(line, only) != only}
    return {offset: at for offset, at in expressions.items() if at[0] in several}


def _statements(code: types.CodeType) -> Iterator[list[tuple[int, int, Range | None]]]:
    """Yields the instructions of each statement, or of a part of it: offset, line, and the range if
    it is an expression that runs other code.
    """
    instructions = code.co_code
    # Since Python 3.11, one position for each code unit of two bytes.
    positions: Any = code.co_positions()  # type: ignore[attr-defined,unused-ignore]
    statement: list[tuple[int, int, Range | None]] = []
    for unit, at in enumerate(positions):
        opcode = instructions[2 * unit]
        if at[0] is not None:
            runs_code = opcode in _RUNS_CODE and None not in at
            statement.append((2 * unit, at[0], at if runs_code else None))
        if opcode in _ENDS_STATEMENT:
            yield statement
            statement = []
    yield statement
