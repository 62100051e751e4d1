"""One rank of a launched run: `boot.py --rank FILE`, started by the launcher in the place of the
program.

It is a fresh process, as the program would be: nothing is forked, and nothing was imported before
the launcher set its variables.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
from typing import Any, NoReturn

from ..process.interpreter import Interpreter
from ..protocol import rank_states
from ..protocol.rank_states import RankState
from ..side_effects import policy as side_effects

# How launchers tell a process its number and how many there are: torchrun, accelerate, deepspeed
# and Ray's trainers as torch itself has it; Open MPI's mpirun; MPICH's and Intel's; Slurm's srun.
# Slurm last: what srun starts may be another one's daemon. And by the number of tasks of the step,
# for SLURM_NTASKS is set in a batch script as well, which is no task of any.
_NUMBERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# A rank that is done stays until the others are, because its end closes connections that they may
# still need; and one that failed stays until it was heard of.
_LONGEST_STAY_SECONDS = 20.0
_LOOK_SECONDS = 0.05
# How often a rank looks whether its run has ended without it.
_RUN_SECONDS = 1.0
# Beyond the run's own limit; for what starts ranks where nobody here can end them.
_GRACE_SECONDS = 30.0


def serve_rank(path: str, agent_folder: str, loaded_at_start: frozenset[str]) -> NoReturn:
    """Runs what the file at `path` asks for as this rank, and ends the process."""
    rank, world_size = number_of_rank(dict(os.environ))
    with open(path, encoding="utf-8") as file:
        request: dict[str, Any] = json.load(file)
    run_folder = str(request["out"])
    if request.get("side_effects", "allow") != "allow":
        # One whose machine went down, or that this machine's supervisor could not see.
        side_effects.sweep()
        side_effects.prepare()
    events = RankEvents(run_folder, rank, world_size)
    _bound_life(request)
    threading.Thread(target=_end_with_run, args=(path,), daemon=True).start()
    interpreter = Interpreter(agent_folder, loaded_at_start)
    interpreter.calm_threads()
    try:
        import torch.profiler
        import torch.utils.data  # noqa: F401

        from ..process.run import run_here
    except BaseException as error:
        why = f"{sys.executable} cannot import torch: {type(error).__name__}: {error}"
        events.send({"event": "outcome", "outcome": "exited", "message": why})
        os._exit(0)
    interpreter.hide_agent()
    out = rank_states.rank_folder(run_folder, rank)
    run_here({**request, "out": out, "launcher": None, "rank": rank}, events, interpreter)


def number_of_rank(variables: dict[str, str]) -> tuple[int, int]:
    """Which rank this is and of how many, by what launchers set. A process without a launcher is
    the one of one.
    """
    for number, count in _NUMBERS:
        rank, size = variables.get(number, ""), variables.get(count, "")
        if all(text.isascii() and text.isdigit() for text in (rank, size)):
            return int(rank), max(int(size), int(rank) + 1)
    return 0, 1


class RankEvents:
    """Tells what a run's process tells (channel.Events) through the rank's file."""

    def __init__(self, run_folder: str, rank: int, world_size: int) -> None:
        self._run_folder = run_folder
        self._state = RankState(rank, world_size, os.getpid())
        rank_states.write(run_folder, self._state)

    def send(self, event: dict[str, Any]) -> None:
        """Writes one event down. After the last one it waits for the other ranks."""
        kind = event.get("event")
        state = self._state
        if kind == "progress":
            state.stage = str(event.get("stage"))
            state.done, state.total = int(event.get("done", 0)), int(event.get("total", 0))
        elif kind == "outcome":
            state.outcome, state.message = str(event.get("outcome")), event.get("message")
        rank_states.write(self._run_folder, state)
        if kind == "outcome":
            self._stay()

    def _stay(self) -> None:
        end = time.monotonic() + _LONGEST_STAY_SECONDS
        while time.monotonic() < end:
            if rank_states.all_ended(rank_states.read_all(self._run_folder)):
                return
            time.sleep(_LOOK_SECONDS)


def _bound_life(request: dict[str, Any]) -> None:
    """Ends this process some time after the run's limit, whatever it does then.

    Who watches the limit ends the ranks long before that; it may have been killed, or be on another
    machine. The watch is faulthandler's, a thread that needs nothing of Python.
    """
    limits = request.get("limits")
    seconds = limits.get("seconds") if isinstance(limits, dict) else None
    if isinstance(seconds, (int, float)) and seconds > 0:
        with contextlib.suppress(Exception):
            nowhere = open(os.devnull, "w")  # noqa: SIM115
            faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True, file=nowhere)


def _end_with_run(path: str) -> None:
    """Ends this process when the run has ended, which takes its request away.

    A cancelled run ends what its launcher has started where it can see it. Ranks on other machines,
    and those of a service that got a job (`ray job submit`), it cannot.
    """
    missed = 0
    while missed < 2:  # A network's file system may fail once.
        time.sleep(_RUN_SECONDS)
        try:
            os.stat(path)
            missed = 0
        except FileNotFoundError:
            missed += 1
        except OSError:
            pass
    os._exit(0)
