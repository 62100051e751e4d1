"""Times a recorded operator as recorded, and in other variants."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from .arguments import BFLOAT16, CHANNELS_LAST, FLOAT16, SAME, ArgumentMismatchError, Call, calls_of
from .library_switches import SWITCHES, Switch
from .timing import calls_in_block, side_by_side, time_calls

VARIANTS = (SAME, BFLOAT16, FLOAT16, CHANNELS_LAST, *SWITCHES)

# The maximum number of copies. An operator on such small tensors is not memory-bound.
_MAX_COPIES = 64
# The tensors of a call, with all copies and variants, may take 1/8 of the memory limit.
_MEMORY_DIVISOR = 8


class Rotation:
    """A variant of an operator, run on several copies of its tensors in turn.

    In a training iteration, other tensors go through the caches between two calls. On a single copy
    in a tight loop, an operator would find everything in the nearest cache and seem faster than it
    is, even more so with half the bytes. Results are kept until their copy is used again, so that
    new ones are not written to warm memory either.
    """

    def __init__(
        self, call: Call, rotate_bytes: float, device: torch.device, switch: Switch
    ) -> None:
        self._device = device
        self._switch = switch
        size = sum(tensor.numel() * tensor.element_size() for tensor in call.tensors())
        # Results are about as large as the operator's largest tensor.
        copies = min(_MAX_COPIES, int(rotate_bytes / max(2 * size, 1)) + 1)
        self._pristine = call.copy() if call.writes else None
        self._calls = [call] + [call.copy() for _ in range(copies - 1)]
        self._results: list[Any] = [None] * copies
        self._next = 0
        self._count = 1

    def warm_up(self) -> None:
        """Lets libraries initialize for these shapes, and measures how long a call takes."""
        with self._switch():
            self._one(0)
            seconds = time_calls(self._one, 1, self._device) / 1e9
        self._count = calls_in_block(seconds, self._device)
        if self._pristine is not None:
            # Each copy is written once before it is restored.
            self._count = min(self._count, len(self._calls))

    def block(self) -> float:
        """Returns nanoseconds per call."""
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
    request: Any,
    device: torch.device,
    memory_bytes: int,
    rotate_bytes: float,
    until: float,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Returns its name, and nanoseconds per call by variant; null if a variant cannot be run. A
    ratio needs both of its sides, so each variant runs at least twice, even if time is up.
    """
    if not isinstance(request, dict):
        return {}
    requested = request.get("variants")
    wanted = [one for one in VARIANTS if isinstance(requested, list) and one in requested]
    if SAME not in wanted:
        wanted.insert(0, SAME)
    name = str(request.get("name"))
    answer: dict[str, Any] = {"name": name, **dict.fromkeys(wanted)}
    rotations: dict[str, Rotation] = {}
    try:
        same = _runnable(request, device, memory_bytes // _MEMORY_DIVISOR)
    except (ArgumentMismatchError, RuntimeError) as error:
        note(f"{name} was not timed: {error}")
        return answer
    unchanged = []
    for variant in wanted:
        try:
            call: Call | None = same
            if variant in SWITCHES:
                call = same.minimally_aligned()
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
            note(f"{name} cannot run as {variant}: {_summary(error)}")
    blocks = {variant: rotation.block for variant, rotation in rotations.items()}
    if SAME not in blocks:
        return answer
    times, error_message = side_by_side(blocks, until)
    if error_message is not None:
        note(f"{name} failed while timed: {error_message}")
    answer.update(times)
    if SAME in times:
        answer.update({variant: times[SAME] for variant in unchanged})
    return answer


def _runnable(request: dict[str, Any], device: torch.device, most_bytes: int) -> Call:
    """Returns the first overload that runs. Raises ArgumentMismatchError if there is none."""
    last = ""
    for call in calls_of(request, device, most_bytes):
        try:
            call.copy()()
            return call
        except Exception as error:
            last = _summary(error)
    raise ArgumentMismatchError(last)


def _summary(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
