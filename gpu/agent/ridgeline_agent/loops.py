"""Finds the loop that an iteration belongs to: the `for` that the programmer wrote."""

from __future__ import annotations

import ast
import types

from .line_clock import LINE, EventLog
from .sources import Sources

# Loops of a file this long are not looked for: parsing it would take seconds.
_LONGEST_TEXT = 4_000_000

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


def find_loop(
    before: Frames, after: Frames, log: EventLog, first: int, last: int, sources: Sources
) -> tuple[int, int] | None:
    """`(file, line)` of the loop that ran once between two boundaries.

    `before` and `after` are the stacks at the boundaries; the records from `first` to `last` lie
    between. The loop stands in the outermost frame that was there at both and moved: those further
    out waited at a call. It is the innermost loop there around all lines that ran.
    """
    lines: dict[int, set[int]] = {}
    for kind, _, code, line in log.records(first, last):
        if kind == LINE:
            lines.setdefault(code, set()).add(line)
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


def _loop_around(code: types.CodeType, lines: set[int], sources: Sources) -> int | None:
    file = sources.file(code.co_filename)
    text = None if file is None else sources.text(file)
    if text is None or len(text) > _LONGEST_TEXT:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
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
