"""Rounds: how often nested loops run before something else happens.

Reinforcement learning may collect experience for a second, and then train on it 320 times. A few
hundred milliseconds of iterations show only the training. If the loops have fixed lengths, their
source shows when the next round begins.
"""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

from ..iterations.rhythm import Round
from ..program.sources import Sources
from . import loops

# Longer rounds are not waited for.
MAX_ITERATIONS = 400
_MAX_NUMBER = 1 << 31
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else None,
}


def round_of(frame: types.FrameType | None, sources: Sources) -> Round | None:
    """Returns the longest round of the loops around the user's code in `frame`, at the end of an
    iteration; None if there is none, or its length is unknown.

    Only loops over a `range` of integers count. Longer rounds than `MAX_ITERATIONS` do not.
    """
    found: Round | None = None
    length, done = 1, 0
    while frame is not None:
        # A line can be unknown.
        for loop in loops.loops_around(frame.f_code, frame.f_lineno or 0, sources):
            if length > 1:
                found = Round(length, done + 1)
            passes = _passes(loop, frame)
            if passes is None:
                return found
            number, index = passes
            length, done = length * number, done + index * length
            if length > MAX_ITERATIONS:
                return found
        frame = frame.f_back
    return found


def _passes(loop: loops.Loop, frame: types.FrameType) -> tuple[int, int] | None:
    """Returns how often a loop over a `range` runs, and the index of the current pass."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
        return None
    call = loop.iter
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range" or call.keywords:
        return None
    numbers = [_integer(argument, frame) for argument in call.args]
    current = _integer(loop.target, frame)
    known = [number for number in numbers if number is not None]
    if current is None or len(known) < len(numbers) or not 1 <= len(known) <= 3 or 0 in known[2:]:
        return None
    passes = range(*known)
    return (len(passes), passes.index(current)) if current in passes else None


def _integer(node: ast.expr, frame: types.FrameType) -> int | None:
    """Returns the value of an expression without running any code of the program; None if that is
    impossible, or it is no small integer.
    """
    value: object = None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _integer(node.left, frame), _integer(node.right, frame)
        if left is not None and right is not None:
            value = _OPERATORS[type(node.op)](left, right)
    else:
        value = _value(node, frame)
    return value if type(value) is int and abs(value) < _MAX_NUMBER else None


def _value(node: ast.expr, frame: types.FrameType) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        variables = frame.f_locals
        return variables.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        # A property is not called.
        return inspect.getattr_static(_value(node.value, frame), node.attr, None)
    return None
