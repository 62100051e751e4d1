"""Times several variants in turns, so that a slow moment of the machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

# Limits for the number of rounds.
_MIN_ROUNDS = 5
_MAX_ROUNDS = 60
# A time is accurate once the faster half of its rounds is within this range.
_ACCURACY = 0.02
# Approximate duration of a block of calls, so that clock resolution and jitter are small.
BLOCK_SECONDS = 1e-3
# The maximum number of launches that are queued behind a waiting kernel. Less than the driver's
# queue holds.
_MAX_QUEUED = 64
_SECONDS_PER_LAUNCH = 2e-5
_CYCLES_PER_SECOND = 2e9


def side_by_side(
    blocks: Mapping[str, Callable[[], float]], until: float
) -> tuple[dict[str, float], str | None]:
    """Returns nanoseconds by name, of blocks that each return the time of a call, and the error of
    a block that was dropped.

    All blocks run in turn, round by round. The lower quartile of each is used, because disturbances
    only ever add time. Ends when all times are accurate to 2%, or when the time is up
    (`time.monotonic`), but not before the second round.
    """
    running = dict(blocks)
    took: dict[str, list[float]] = {name: [] for name in running}
    error_message = None
    for round_number in range(1, _MAX_ROUNDS + 1):
        for name in list(running):
            try:
                took[name].append(running[name]())
            except Exception as error:
                error_message = f"{name}: {type(error).__name__}: {error}"
                del running[name]
        time_is_up = round_number >= 2 and time.monotonic() >= until
        is_accurate = round_number >= _MIN_ROUNDS and all(
            _is_accurate(took[name]) for name in running
        )
        if not running or time_is_up or is_accurate:
            break
    return {name: sorted(took[name])[len(took[name]) // 4] for name in running}, error_message


def _is_accurate(took: list[float]) -> bool:
    ordered = sorted(took)
    return ordered[len(ordered) // 2] <= ordered[0] * (1 + _ACCURACY)


def time_calls(call: Callable[[int], object], count: int, device: torch.device) -> float:
    """Returns nanoseconds per call of `count` calls in a row; each call gets its number.

    On a GPU this is the GPU's time: the calls are queued behind a waiting kernel, so that the
    host's launches are not measured.
    """
    if device.type != "cuda":
        began = time.perf_counter_ns()
        for number in range(count):
            call(number)
        return (time.perf_counter_ns() - began) / count
    start_event = torch.cuda.Event(enable_timing=True)
    end_event = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    torch.cuda._sleep(int(_SECONDS_PER_LAUNCH * _CYCLES_PER_SECOND * (count + 8)))
    start_event.record()
    for number in range(count):
        call(number)
    end_event.record()
    torch.cuda.synchronize(device)
    return float(start_event.elapsed_time(end_event)) * 1e6 / count


def calls_in_block(seconds: float, device: torch.device) -> int:
    """Returns how many calls of this duration form a block."""
    most = _MAX_QUEUED if device.type == "cuda" else 1000
    return max(1, min(most, int(BLOCK_SECONDS / max(seconds, 1e-7))))
