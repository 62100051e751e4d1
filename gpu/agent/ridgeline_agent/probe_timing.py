"""Times several ways of doing the same side by side: what slows the machine down slows all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

# Rounds of which the ratio is the median.
_LEAST_ROUNDS = 5
_MOST_ROUNDS = 60
# The median of the ratios is known well enough when its standard error is below this.
_CLOSE = 0.01
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

    The first is its median; the others are that times the median of their ratios to the first one,
    round by round. Ends when the ratios are known to 1%, or the time is up (`time.monotonic`).
    """
    running = dict(blocks)
    took: dict[str, list[float]] = {name: [] for name in running}
    wrong = None
    for round_number in range(_MOST_ROUNDS):
        for name in list(running):
            try:
                took[name].append(running[name]())
            except Exception as error:
                wrong = f"{name}: {type(error).__name__}: {error}"
                del running[name]
        if not running or (round_number + 1 >= 2 and time.monotonic() >= until):
            break
        if round_number + 1 >= _LEAST_ROUNDS and all(
            _standard_error(took, name) < _CLOSE for name in running
        ):
            break
    names = [name for name in blocks if name in running]
    if not names:
        return {}, wrong
    first = names[0]
    base = statistics.median(took[first])
    medians = {name: base * statistics.median(_ratios(took, first, name)) for name in names}
    return medians, wrong


def _ratios(took: dict[str, list[float]], first: str, name: str) -> list[float]:
    return [then / now for then, now in zip(took[name], took[first]) if now > 0] or [1.0]


def _standard_error(took: dict[str, list[float]], name: str) -> float:
    first = next(iter(took))
    ratios = took[name] if name == first else _ratios(took, first, name)
    middle = statistics.median(ratios)
    deviation = statistics.median(abs(one - middle) for one in ratios)
    # Of a normal distribution: 1.48 for the deviation, 1.25 for a median instead of a mean.
    return 1.85 * deviation / middle / len(ratios) ** 0.5 if middle > 0 else 0.0


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
