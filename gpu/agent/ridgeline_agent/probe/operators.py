"""Runs one recorded operator by itself, as it was recorded and in other ways."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from .arguments import BFLOAT16, CHANNELS_LAST, FLOAT16, SAME, ArgumentMismatchError, Call, calls_of
from .library_switches import SWITCHES, Switch
from .timing import calls_in_block, side_by_side, time_calls

VARIANTS = (SAME, BFLOAT16, FLOAT16, CHANNELS_LAST, *SWITCHES)

# More copies than this are not made: an operator on tensors so small is not bound by memory.
_MOST_COPIES = 64
# Tensors of a call, all its copies and ways counted, take at most this share of the limit.
_SHARE_OF_MEMORY = 8


class Rotation:
    """One way of running an operator, on several copies of its tensors in turn.

    In a training iteration other tensors go through the caches between one call and the next. On
    one copy in a tight loop, an operator would find all of it in the nearest cache and seem faster
    than it is, and in half the bytes the more so. Results are kept until their copy's turn comes
    again, so that new ones are not written over warm memory either.
    """

    def __init__(
        self, call: Call, rotate_bytes: float, device: torch.device, switch: Switch
    ) -> None:
        self._device = device
        self._switch = switch
        size = sum(tensor.numel() * tensor.element_size() for tensor in call.tensors())
        # Results are about as large as the largest tensor that an operator takes.
        copies = min(_MOST_COPIES, int(rotate_bytes / max(2 * size, 1)) + 1)
        self._pristine = call.copy() if call.writes else None
        self._calls = [call] + [call.copy() for _ in range(copies - 1)]
        self._results: list[Any] = [None] * copies
        self._next = 0
        self._count = 1

    def warm_up(self) -> None:
        """Lets libraries make what they keep for these shapes, and looks how long a call takes."""
        with self._switch():
            self._one(0)
            seconds = time_calls(self._one, 1, self._device) / 1e9
        self._count = calls_in_block(seconds, self._device)
        if self._pristine is not None:
            # Each copy is written to once before it is set back.
            self._count = min(self._count, len(self._calls))

    def block(self) -> float:
        """Nanoseconds of a call."""
        if self._pristine is not None:
            for call in self._calls:
                call.fill_from(self._pristine)
        with self._switch():
            return time_calls(self._one, self._count, self._device)

    def _one(self, _: int) -> None:
        index = self._next
        self._next = (index + 1) % len(self._calls)
        self._results[index] = self._calls[index]()


def probe_operator(
    asked: Any,
    device: torch.device,
    memory_bytes: int,
    rotate_bytes: float,
    until: float,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Its name, and nanoseconds of a call by variant; null where it cannot be run so. A ratio needs
    both of its sides, so that each runs at least twice, however late it is.
    """
    if not isinstance(asked, dict):
        return {}
    listed = asked.get("variants")
    wanted = [one for one in VARIANTS if isinstance(listed, list) and one in listed]
    if SAME not in wanted:
        wanted.insert(0, SAME)
    name = str(asked.get("name"))
    answer: dict[str, Any] = {"name": name, **dict.fromkeys(wanted)}
    rotations: dict[str, Rotation] = {}
    try:
        same = _runnable(asked, device, memory_bytes // _SHARE_OF_MEMORY)
    except (ArgumentMismatchError, RuntimeError) as error:
        note(f"{name} was not timed: {error}")
        return answer
    unchanged = []
    for variant in wanted:
        try:
            call: Call | None = same
            if variant in SWITCHES:
                call = same.elsewhere()
            elif variant != SAME:
                call = same.changed(variant)
            if call is None:
                unchanged.append(variant)
                continue
            switch = SWITCHES.get(variant, nullcontext)
            rotation = Rotation(call, rotate_bytes, device, switch)
            rotation.warm_up()
            rotations[variant] = rotation
        except Exception as error:
            note(f"{name} cannot run as {variant}: {_in_short(error)}")
    blocks = {variant: rotation.block for variant, rotation in rotations.items()}
    if SAME not in blocks:
        return answer
    times, wrong = side_by_side(blocks, until)
    if wrong is not None:
        note(f"{name} failed while timed: {wrong}")
    answer.update(times)
    if SAME in times:
        answer.update({variant: times[SAME] for variant in unchanged})
    return answer


def _runnable(asked: dict[str, Any], device: torch.device, most_bytes: int) -> Call:
    """The first overload that runs. Raises ArgumentMismatchError where none does."""
    last = ""
    for call in calls_of(asked, device, most_bytes):
        try:
            call.copy()()
            return call
        except Exception as error:
            last = _in_short(error)
    raise ArgumentMismatchError(last)


def _in_short(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
