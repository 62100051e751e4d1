"""The lines that the training thread runs while iterations are timed, sampled every 20 ms.

Iterations that are rarely slow (an evaluation, a plot) are not among those that are profiled.
Samples of their stacks show what makes them slow.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Collection

from ..program.sources import Sources

_INTERVAL_SECONDS = 0.02
_MAX_SAMPLES = 2_000
_MAX_FRAMES = 200
_MAX_STACKS = 64

# (file name, line) of all frames, outermost first.
_Stack = tuple[tuple[str, int], ...]


class StackSamples:
    """Samples the stack of the thread that creates it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._iteration = 0
        self._samples: list[tuple[int, _Stack]] = []
        self._is_on = True
        # Without the GIL, another thread's frames cannot be read safely.
        if getattr(sys, "_is_gil_enabled", lambda: True)():
            # Not a `threading.Thread`, which the program would see.
            _thread.start_new_thread(_sample, (weakref.ref(self),))

    def iteration_ended(self) -> None:
        """Attributes the following samples to the next iteration."""
        self._iteration += 1

    def stop(self) -> None:
        """Ends the sampling."""
        self._is_on = False

    def take(self) -> bool:
        """Takes one sample. Returns whether another should follow."""
        if not self._is_on or len(self._samples) >= _MAX_SAMPLES:
            return False
        frame = sys._current_frames().get(self._thread)
        stack: list[tuple[str, int]] = []
        while frame is not None and len(stack) < _MAX_FRAMES:
            stack.append((frame.f_code.co_filename, frame.f_lineno or 0))
            frame = frame.f_back
        self._samples.append((self._iteration, tuple(reversed(stack))))
        return True

    def json(self, slow: Collection[int], sources: Sources) -> list[dict[str, object]]:
        """Returns `iterations.slow_stacks` for the manifest: lines of user code, the most frequent
        stacks first.
        """
        if not slow:
            return []
        of_slow: Counter[_Stack] = Counter()
        of_others: Counter[_Stack] = Counter()
        for iteration, stack in self._samples:
            if iteration >= self._iteration:
                # The recording was given up on during that iteration, so it has no time.
                break
            (of_slow if iteration in slow else of_others)[stack] += 1
        counts: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for place, stacks in enumerate((of_slow, of_others)):
            for stack, count in stacks.items():
                files = ((sources.file(name), line) for name, line in stack)
                lines = tuple((file, line) for file, line in files if file is not None and line > 0)
                if lines:
                    counts.setdefault(lines, [0, 0])[place] += count
        frequent = sorted(counts, key=lambda lines: (-sum(counts[lines]), lines))[:_MAX_STACKS]
        return [
            {
                "lines": [{"file": file, "line": line} for file, line in lines],
                "slow": counts[lines][0],
                "others": counts[lines][1],
            }
            for lines in frequent
        ]


def _sample(samples: weakref.ref[StackSamples]) -> None:
    while True:
        time.sleep(_INTERVAL_SECONDS)
        alive = samples()
        if alive is None or not alive.take():
            return
        del alive
