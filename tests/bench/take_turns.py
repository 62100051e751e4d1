"""Measures two versions of a training script side by side. Each runs in its own process, and they
alternate every few iterations, so that other load on the machine slows both down equally.

On a CPU that is also used by others, TURNS_BY_PROCESSOR_TIME=1 measures the program's CPU time
instead. Then use one thread (OMP_NUM_THREADS=1) and no data-loading workers.

The end of an optimizer step marks the end of an iteration. There is no other instrumentation, and
Ridgeline is not involved.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# In each turn, reads a line with the number of iterations and replies with their nanoseconds. On a
# GPU, a turn is synchronized at its start and end, and its time is divided evenly over its
# iterations.
PROGRAM = """
import json, os, runpy, sys, time
answers = os.fdopen(os.dup(1), "w")
orders = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
import torch
from torch.optim import optimizer
steps_per_iteration = int(sys.argv[2])
steps, left, took, began = 0, 0, [], 0
on_gpu = torch.cuda.is_available()
clock = time.process_time_ns if os.environ.get("TURNS_BY_PROCESSOR_TIME") else time.perf_counter_ns
def settled():
    if on_gpu:
        torch.cuda.synchronize()
    return clock()
def next_turn():
    global left, took, began
    order = orders.readline()
    if not order.strip():
        os._exit(0)
    left, took = int(order), []
    began = settled()
def stepped(*_):
    global steps, left, began
    steps += 1
    if steps % steps_per_iteration:
        return
    now = clock()
    took.append(now - began)
    began = now
    left -= 1
    if left == 0:
        if on_gpu:
            total = sum(took) + settled() - now
            took[:] = [total / len(took)] * len(took)
        print(json.dumps(took), file=answers, flush=True)
        next_turn()
optimizer.register_optimizer_step_post_hook(stepped)
sys.path.insert(0, os.path.dirname(sys.argv[1]))
sys.argv = sys.argv[1:2] + sys.argv[3:]
next_turn()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# The first iterations after the other version's turn run with cold caches.
DROPPED = 1
# If there is time, rounds are added until the relative standard error of the median ratio is below
# this.
TARGET_ERROR = 0.01
MORE_SECONDS = 60.0
# Factor from the interquartile range to the standard error of a median, for a normal distribution:
# 1.2533 / 1.349.
ERROR_PER_QUARTILE_RANGE = 0.929


class Version:
    """A running version of a script that waits for its turn."""

    def __init__(self, python: str, script: Path, steps: int, arguments: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [python, "-c", PROGRAM, str(script), str(steps), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=script.parent,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def turn(self, iterations: int) -> list[float]:
        """Runs this many iterations and returns their times in nanoseconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{iterations}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            error = self._errors.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"the program exited before its turn was over: {error}")
        return json.loads(answer)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def keep_pages() -> None:
    """Makes the C library of programs started from here on keep freed pages. If it returns them to
    the system and allocates them again, processes of one program differ in speed by 10%
    (`docs/benchmarks.md`, "Estimates of unsaved text").
    """
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        os.environ.setdefault(name, "4000000000")


def is_precise(ratios: list[float]) -> bool:
    """Whether the median ratio is precise enough."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return ERROR_PER_QUARTILE_RANGE * (high - low) / len(ratios) ** 0.5 <= TARGET_ERROR * middle


def speedup(
    python: str,
    before: Path,
    after: Path,
    *,
    steps: int = 1,
    arguments: list[str],
    arguments_after: list[str] | None = None,
    warmup: int = 5,
    rounds: int = 12,
    more_seconds: float = 0.0,
    iterations: int = 6,
    dropped: int = DROPPED,
    processes: int = 1,
    reduce_turn: Callable[[list[float]], float] = statistics.median,
) -> dict[str, Any]:
    """Returns the speedup of the second script: the median over rounds, and the interquartile
    range. If that is wide, rounds are added for up to `more_seconds`. `arguments_after` are the
    second script's arguments if they differ; `of_turn` reduces the iterations of a turn to one
    value. The location of a process's tensors in memory does not change and makes it faster or
    slower than the next one. With several `processes` of each script, the result is the median of
    their medians.
    """
    medians, all_ratios, turn_times = [], [], ([], [])
    for _ in range(processes):
        versions: list[Version] = []
        try:
            for script, script_arguments in (
                (before, arguments),
                (after, arguments_after or arguments),
            ):
                versions.append(Version(python, script, steps, script_arguments))
                versions[-1].turn(warmup)
            ratios = []
            deadline = time.monotonic() + more_seconds
            while len(ratios) < rounds or (time.monotonic() < deadline and not is_precise(ratios)):
                pair = []
                for version, version_times in zip(versions, turn_times):
                    turn = version.turn(iterations + dropped)[dropped:]
                    pair.append(reduce_turn(turn))
                    version_times.append(pair[-1])
                ratios.append(pair[0] / pair[1])
        finally:
            for version in versions:
                version.close()
        medians.append(statistics.median(ratios))
        all_ratios += ratios
    quarters = statistics.quantiles(all_ratios, n=4)
    return {
        "speedup": statistics.median(medians),
        "of_processes": medians,
        "quarter": quarters[0],
        "three_quarters": quarters[2],
        "before_ns": statistics.median(turn_times[0]),
        "after_ns": statistics.median(turn_times[1]),
    }
