"""Times several ways of doing the same side by side: what slows the machine down slows all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

# As many rounds as the time allows, within these.
_LEAST_ROUNDS = 5
_MOST_ROUNDS = 60
# A time is known when the quicker half of its rounds lies this close together.
_CLOSE = 0.02
# A block of calls takes about this long, so that the clock and the machine's jitter are small.
BLOCK_SECONDS = 1e-3
# Launches that are queued behind a kernel that waits: less than the driver's queue holds.
_MOST_QUEUED = 64
_SECONDS_PER_LAUNCH = 2e-5
_CYCLES_PER_SECOND = 2e9


def side_by_side(
    blocks: Mapping[str, Callable[[], float]], until: float
) -> tuple[dict[str, float], str | None]:
    """Nanoseconds by name, of blocks that each return what a call took, and what went wrong with
    one that is left out.

    All run in turn, round by round. Of each the lower quartile counts: what disturbs a machine only
    ever adds time. Ends when all are known to 2%, or the time is up (`time.monotonic`), but not
    before the second round.
    """
    running = dict(blocks)
    took: dict[str, list[float]] = {name: [] for name in running}
    wrong = None
    for round_number in range(1, _MOST_ROUNDS + 1):
        for name in list(running):
            try:
                took[name].append(running[name]())
            except Exception as error:
                wrong = f"{name}: {type(error).__name__}: {error}"
                del running[name]
        time_is_up = round_number >= 2 and time.monotonic() >= until
        is_known = round_number >= _LEAST_ROUNDS and all(_is_close(took[name]) for name in running)
        if not running or time_is_up or is_known:
            break
    return {name: sorted(took[name])[len(took[name]) // 4] for name in running}, wrong


def _is_close(took: list[float]) -> bool:
    ordered = sorted(took)
    return ordered[len(ordered) // 2] <= ordered[0] * (1 + _CLOSE)


def time_calls(call: Callable[[int], object], count: int, device: torch.device) -> float:
    """Nanoseconds of one of `count` calls in a row; each is told its number.

    On a GPU those of the GPU: the calls are queued behind a kernel that waits, so that the host's
    launches are not what is timed.
    """
    if device.type != "cuda":
        began = time.perf_counter_ns()
        for number in range(count):
            call(number)
        return (time.perf_counter_ns() - began) / count
    begun = torch.cuda.Event(enable_timing=True)
    ended = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    torch.cuda._sleep(int(_SECONDS_PER_LAUNCH * _CYCLES_PER_SECOND * (count + 8)))
    begun.record()
    for number in range(count):
        call(number)
    ended.record()
    torch.cuda.synchronize(device)
    return float(begun.elapsed_time(ended)) * 1e6 / count


def calls_in_block(seconds: float, device: torch.device) -> int:
    """How many calls of this length make a block."""
    most = _MOST_QUEUED if device.type == "cuda" else 1000
    return max(1, min(most, int(BLOCK_SECONDS / max(seconds, 1e-7))))
