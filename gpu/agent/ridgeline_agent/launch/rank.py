"""One rank of a launched run: `boot.py --rank FILE`, which the launcher starts instead of the
program.

It is a new process, like the program would be: nothing is forked, and nothing was imported before
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

# The variables with which launchers pass rank and world size: torchrun, accelerate, deepspeed and
# Ray's trainers like torch itself; Open MPI's mpirun; MPICH and Intel MPI; Slurm's srun. Slurm
# comes last, because srun may start another launcher's daemon. SLURM_STEP_NUM_TASKS is used because
# SLURM_NTASKS is also set in a batch script, which is not a task of a step.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# A rank that is done waits for the others, because its exit closes connections that they may still
# need; a rank that failed waits until its outcome was read.
_MAX_WAIT_SECONDS = 20.0
_POLL_SECONDS = 0.05
# Interval for checking whether the run has ended without this rank.
_RUN_CHECK_SECONDS = 1.0
# Added to the run's own limit, for launchers whose ranks cannot be ended from here.
_GRACE_SECONDS = 30.0


def serve_rank(path: str, agent_folder: str, loaded_at_start: frozenset[str]) -> NoReturn:
    """Runs the request in the file at `path` as this rank, and ends the process."""
    rank, world_size = number_of_rank(dict(os.environ))
    with open(path, encoding="utf-8") as file:
        request: dict[str, Any] = json.load(file)
    run_folder = str(request["out"])
    if request.get("side_effects", "allow") != "allow":
        # Folders of a run whose machine crashed, or that this machine's supervisor could not see.
        side_effects.sweep()
        side_effects.prepare()
    events = RankEvents(run_folder, rank, world_size)
    _start_watchdog(request)
    threading.Thread(target=_end_with_run, args=(path,), daemon=True).start()
    interpreter = Interpreter(agent_folder, loaded_at_start)
    interpreter.set_library_variables()
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
    """Returns rank and world size from the launchers' variables. A process without a launcher is
    rank 0 of 1.
    """
    for number, count in _RANK_VARIABLES:
        rank, size = variables.get(number, ""), variables.get(count, "")
        if all(text.isascii() and text.isdigit() for text in (rank, size)):
            return int(rank), max(int(size), int(rank) + 1)
    return 0, 1


class RankEvents:
    """Forwards a run's events (channel.Events) to the rank's file."""

    def __init__(self, run_folder: str, rank: int, world_size: int) -> None:
        self._run_folder = run_folder
        self._state = RankState(rank, world_size, os.getpid())
        rank_states.write(run_folder, self._state)

    def send(self, event: dict[str, Any]) -> None:
        """Writes an event to the file. After the outcome, waits for the other ranks."""
        kind = event.get("event")
        state = self._state
        if kind == "progress":
            state.stage = str(event.get("stage"))
            state.done, state.total = int(event.get("done", 0)), int(event.get("total", 0))
        elif kind == "outcome":
            state.outcome, state.message = str(event.get("outcome")), event.get("message")
        rank_states.write(self._run_folder, state)
        if kind == "outcome":
            self._wait_for_others()

    def _wait_for_others(self) -> None:
        end = time.monotonic() + _MAX_WAIT_SECONDS
        while time.monotonic() < end:
            if rank_states.all_ended(rank_states.read_all(self._run_folder)):
                return
            time.sleep(_POLL_SECONDS)


def _start_watchdog(request: dict[str, Any]) -> None:
    """Ends this process some time after the run's limit, whatever it does.

    The process that watches the limit ends the ranks much earlier, but it may have been killed, or
    be on another machine. faulthandler provides the watchdog: a thread that does not need Python.
    """
    limits = request.get("limits")
    seconds = limits.get("seconds") if isinstance(limits, dict) else None
    if isinstance(seconds, (int, float)) and seconds > 0:
        with contextlib.suppress(Exception):
            nowhere = open(os.devnull, "w")  # noqa: SIM115
            faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True, file=nowhere)


def _end_with_run(path: str) -> None:
    """Ends this process when the run has ended, which deletes its request.

    A cancelled run ends the processes of its launcher that it can see. It cannot see ranks on other
    machines, or those of a job service (`ray job submit`).
    """
    missed = 0
    while missed < 2:  # A network file system may fail once.
        time.sleep(_RUN_CHECK_SECONDS)
        try:
            os.stat(path)
            missed = 0
        except FileNotFoundError:
            missed += 1
        except OSError:
            pass
    os._exit(0)
