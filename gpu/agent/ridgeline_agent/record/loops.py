"""Finds the loop that an iteration belongs to: the `for` that the programmer wrote."""

from __future__ import annotations

import ast
import functools
import types
from typing import Any

import torch

from ..program.sources import Sources
from .line_clock import LINE, EventLog

# Loops of a file this long are not looked for: parsing it would take seconds.
_LONGEST_TEXT = 4_000_000
# Objects may be made so that each pretends to wrap another one.
_MOST_WRAPPERS = 100

Frames = list[tuple[int, types.CodeType, int]]


def stack_frames(frame: types.FrameType | None, sources: Sources) -> Frames:
    """`(identity, code, line)` of the user's frames, outermost first."""
    frames = []
    while frame is not None:
        if sources.code(frame.f_code) is not None:
            frames.append((id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back
    frames.reverse()
    return frames


def lines_in(log: EventLog, first: int, last: int) -> dict[int, set[int]]:
    """The lines that ran between two records of the log, by index of their code."""
    lines: dict[int, set[int]] = {}
    for kind, _, code, line in log.records(first, last):
        if kind == LINE:
            lines.setdefault(code, set()).add(line)
    return lines


def find_loop(
    before: Frames, after: Frames, lines: dict[int, set[int]], sources: Sources
) -> tuple[int, int] | None:
    """`(file, line)` of the loop that ran once between two boundaries.

    `before` and `after` are the stacks at the boundaries; `lines` ran between, by index of their
    code. The loop stands in the outermost frame that was there at both and moved: those further
    out waited at a call. It is the innermost loop there around all lines that ran.
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
    """`(file, line)` of the `def` of a function of the user's, or None where it is none."""
    code = _code_of(function)
    file = None if code is None else sources.file(code.co_filename)
    if code is None or file is None:
        return None
    line = code.co_firstlineno
    tree = _tree(code, sources)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # A code object begins with the first decorator.
            begin = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if begin == line and node.name == code.co_name:
                return (file, node.lineno)
    return (file, line)


def _code_of(function: Any) -> types.CodeType | None:
    """The code of a function, a method, a partial, a module, or another object that is called."""
    for _ in range(_MOST_WRAPPERS):
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


def _tree(code: types.CodeType, sources: Sources) -> ast.Module | None:
    file = sources.file(code.co_filename)
    text = None if file is None else sources.text(file)
    if text is None or len(text) > _LONGEST_TEXT:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _loop_around(code: types.CodeType, lines: set[int], sources: Sources) -> int | None:
    tree = _tree(code, sources)
    if tree is None:
        return None
    first, last = min(lines), max(lines)
    around: list[ast.For | ast.AsyncFor | ast.While] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        and node.lineno >= code.co_firstlineno
        and node.lineno <= first
        and (node.end_lineno or 0) >= last
    ]
    innermost = max(around, key=lambda loop: loop.lineno, default=None)
    return None if innermost is None else innermost.lineno
