"""Rounds: how often nested loops run before something else happens.

Reinforcement learning may collect experience for a second, and then train on it 320 times. A few
hundred milliseconds of iterations show only the training. If the loops have fixed lengths, their
source shows when the next round begins. The loops may be those of a library.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import types
from collections.abc import Iterator
from typing import Any

import torch

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


# Its loops are over parameters and hooks.
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def round_of(
    frame: types.FrameType | None, sources: Sources, in_a_pass: int | None = None
) -> Round | None:
    """Returns the longest round of the loops around the code in `frame`, at the end of an
    iteration; None if there is none, or its length is unknown.

    Only loops over a `range` of integers count. Longer rounds than `MAX_ITERATIONS` do not.

    Args:
        in_a_pass: The number of iterations in a pass of `repeated_loop`, the first of which has
            just ended; None if that is the innermost loop.
    """
    found: Round | None = None
    length, done = in_a_pass or 1, 0
    is_inside = in_a_pass is not None
    for loop, around in _loops_outwards(frame, sources):
        passes = _passes(loop, around)
        if is_inside and not _repeats(passes):
            continue
        is_inside = False
        if length > 1:
            found = Round(length, done + 1)
        if passes is None:
            return found
        number, index = passes
        length, done = length * number, done + index * length
        if length > MAX_ITERATIONS:
            return found
    return found


def repeated_loop(
    frame: types.FrameType | None, sources: Sources
) -> tuple[ast.For, types.FrameType] | None:
    """Returns the innermost loop over a `range`, and its frame, if loops of unknown length are
    inside it.
    """
    has_unknown = False
    for loop, around in _loops_outwards(frame, sources):
        passes = _passes(loop, around)
        if isinstance(loop, ast.For) and _repeats(passes):
            return (loop, around) if has_unknown else None
        has_unknown |= passes is None
    return None


def index_of_pass(loop: ast.For, frame: types.FrameType) -> int | None:
    """Returns the index of the current pass of a loop over a `range`."""
    passes = _passes(loop, frame)
    return None if passes is None else passes[1]


def _repeats(passes: tuple[int, int] | None) -> bool:
    return passes is not None and passes[0] > 1


def _loops_outwards(
    frame: types.FrameType | None, sources: Sources
) -> Iterator[tuple[loops.Loop, types.FrameType]]:
    """Yields the loops around the code in `frame`, innermost first, each with its frame."""
    while frame is not None:
        # A line can be unknown.
        for loop in loops.loops_around(frame.f_code, frame.f_lineno or 0, _tree(frame, sources)):
            yield loop, frame
        frame = None if _is_program(frame) else frame.f_back


def _is_program(frame: types.FrameType) -> bool:
    """Whether the frame is that of the script. What started it is not part of the program."""
    is_module = frame.f_code.co_name == "<module>"
    return is_module and frame.f_globals.get("__name__") == "__main__"


def _tree(frame: types.FrameType, sources: Sources) -> ast.Module | None:
    name = frame.f_code.co_filename
    if sources.code(frame.f_code) is not None:
        return loops.tree_of(frame.f_code, sources)
    if name.startswith(_TORCH) or not sources.user_code.is_library(name):
        return None
    return _library_tree(name)


@functools.lru_cache(maxsize=64)
def _library_tree(name: str) -> ast.Module | None:
    try:
        with open(name, "rb") as file:
            return loops.parsed(file.read(loops.MAX_TEXT_BYTES + 1))
    except OSError:
        return None


def _passes(loop: loops.Loop, frame: types.FrameType) -> tuple[int, int] | None:
    """Returns how often a loop over a `range` runs, and the index of the current pass."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
        return None
    arguments = _range_arguments(loop.iter)
    if arguments is None:
        return None
    numbers = [_integer(argument, frame) for argument in arguments]
    current = _integer(loop.target, frame)
    known = [number for number in numbers if number is not None]
    if current is None or len(known) < len(numbers) or not 1 <= len(known) <= 3 or 0 in known[2:]:
        return None
    passes = range(*known)
    return (len(passes), passes.index(current)) if current in passes else None


def _range_arguments(node: ast.expr) -> list[ast.expr] | None:
    """Returns the arguments of a `range`, also of one with a progress bar: `tqdm(range(n))`,
    `trange(n)`.
    """
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "trange" or (ast.unparse(node.func) == "range" and not node.keywords):
        return node.args
    return _range_arguments(node.args[0]) if name == "tqdm" and node.args else None


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
