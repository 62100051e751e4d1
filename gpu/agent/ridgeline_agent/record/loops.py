"""Finds the loop of an iteration: the programmer's `for` statement."""

from __future__ import annotations

import ast
import functools
import types
from typing import Any, Union

import torch

from ..program.sources import Sources
from .line_clock import LINE, EventLog

# Longer files are not searched for loops, because parsing them would take seconds.
MAX_TEXT_BYTES = 4_000_000
# Objects may be constructed so that each pretends to wrap another one.
_MAX_WRAPPERS = 100

Frames = list[tuple[int, types.CodeType, int]]
Loop = Union[ast.For, ast.AsyncFor, ast.While]


def stack_frames(frame: types.FrameType | None, sources: Sources) -> Frames:
    """Returns `(frame ID, code, line)` of the user's frames, outermost first."""
    frames = []
    while frame is not None:
        if sources.code(frame.f_code) is not None:
            frames.append((id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back
    frames.reverse()
    return frames


def lines_in(log: EventLog, first: int, last: int) -> dict[int, set[int]]:
    """Returns the lines that ran between two positions of the log, by code index."""
    lines: dict[int, set[int]] = {}
    for kind, _, code, line in log.records(first, last):
        if kind == LINE:
            lines.setdefault(code, set()).add(line)
    return lines


def find_loop(
    before: Frames, after: Frames, lines: dict[int, set[int]], sources: Sources
) -> tuple[int, int] | None:
    """Returns `(file, line)` of the loop that ran once between two boundaries.

    `before` and `after` are the stacks at the boundaries; `lines` ran in between, by code index.
    The loop is in the outermost frame that exists at both boundaries and whose line changed: frames
    further out were waiting at a call. It is the innermost loop there around all lines that ran.
    """
    for (frame, function, line), (frame_after, _, line_after) in zip(before, after):
        index = sources.code(function)
        if frame != frame_after or index is None:
            break
        ran = lines.get(index)
        if ran:
            loop = _loop_around(function, ran | {line, line_after}, sources)
            file = sources.file(function.co_filename)
            if loop is not None and file is not None:
                return (file, loop)
    return None


def definition(function: object, sources: Sources) -> tuple[int, int] | None:
    """Returns `(file, line)` of the `def` of a user function, or None for other functions."""
    code = _code_of(function)
    file = None if code is None else sources.file(code.co_filename)
    if code is None or file is None:
        return None
    line = code.co_firstlineno
    tree = tree_of(code, sources)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # A code object begins with the first decorator.
            begin = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if begin == line and node.name == code.co_name:
                return (file, node.lineno)
    return (file, line)


def _code_of(function: Any) -> types.CodeType | None:
    """Returns the code of a function, method, partial, module, or other callable object."""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, torch.nn.Module):
            function = type(function).forward
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def tree_of(code: types.CodeType, sources: Sources) -> ast.Module | None:
    """Returns the syntax tree of the file of a user's function; None for other functions."""
    file = sources.file(code.co_filename)
    text = None if file is None else sources.python(file)
    return None if text is None else parsed(text)


def parsed(text: bytes) -> ast.Module | None:
    """Returns the syntax tree of a file; None if it has none, or is too long."""
    if len(text) > MAX_TEXT_BYTES:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _loop_around(code: types.CodeType, lines: set[int], sources: Sources) -> int | None:
    first, last = min(lines), max(lines)
    around = loops_around(code, first, tree_of(code, sources))
    found = (loop.lineno for loop in around if (loop.end_lineno or 0) >= last)
    return next(found, None)


def loops_around(code: types.CodeType, line: int, tree: ast.Module | None) -> list[Loop]:
    """Returns the loops in a function that contain a line, innermost first.

    Args:
        tree: The file of the function.
    """
    around: list[Loop] = [
        node
        for node in (() if tree is None else ast.walk(tree))
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        and code.co_firstlineno <= node.lineno <= line <= (node.end_lineno or 0)
    ]
    return sorted(around, key=lambda loop: loop.lineno, reverse=True)
