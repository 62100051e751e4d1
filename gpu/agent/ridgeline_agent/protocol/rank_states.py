"""The progress of each rank of a launched run: one small file per rank in a common folder.

Files are the only thing that ranks have in common: their launcher starts them and owns their
standard streams. A launcher for several machines needs a shared folder anyway.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from json import dump, loads
from typing import Any

from ..system.private_files import private
from .host import STAGES

FOLDER = "ranks"
# The request that ranks read. It contains the configuration's variables.
REQUEST = "launch.json"
_MAX_BYTES = 64 * 2**10
_MAX_MESSAGE_CHARS = 2000


@dataclass
class RankState:
    """The progress of a rank."""

    rank: int
    world_size: int
    pid: int
    stage: str = "starting"
    done: int = 0
    total: int = 0
    # Outcome as in the protocol; None while it runs.
    outcome: str | None = None
    message: str | None = None


def progress_key(state: RankState) -> tuple[int, int]:
    """Sort key of a rank's progress."""
    stage = STAGES.index(state.stage) if state.stage in STAGES else 0
    return stage, state.done


def rank_folder(out: str, rank: int) -> str:
    """Returns the folder of a rank's recording: the run's own folder for rank 0."""
    return out if rank == 0 else os.path.join(out, f"rank-{rank}")


def write(out: str, state: RankState) -> None:
    """Writes the file atomically. `out` is the folder of the whole run."""
    path = os.path.join(out, FOLDER, f"{state.rank}.json")
    state.message = None if state.message is None else state.message[:_MAX_MESSAGE_CHARS]
    with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
        dump(asdict(state), file)
    os.replace(path + ".part", path)


def read_all(out: str) -> dict[int, RankState]:
    """Returns the states by rank. Invalid files are skipped."""
    folder = os.path.join(out, FOLDER)
    states: dict[int, RankState] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return states
    for name in names:
        number, _, extension = name.partition(".")
        if extension == "json" and number.isascii() and number.isdigit():
            state = _read(os.path.join(folder, name))
            if state is not None and state.rank == int(number):
                states[state.rank] = state
    return dict(sorted(states.items()))


def _read(path: str) -> RankState | None:
    # The program could write there too, so validate everything.
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError):
        with open(path, encoding="utf-8") as file:
            value: Any = loads(file.read(_MAX_BYTES))
        if isinstance(value, dict):
            numbers = [value[key] for key in ("rank", "world_size", "pid", "done", "total")]
            texts = [value["stage"], value["outcome"] or "", value["message"] or ""]
            if all(type(one) is int for one in numbers) and all(
                isinstance(one, str) for one in texts
            ):
                rank, world_size, pid, done, total = numbers
                return RankState(
                    rank,
                    world_size,
                    pid,
                    texts[0],
                    done,
                    total,
                    value["outcome"],
                    value["message"],
                )
    return None


def processes_of_run(out: str, rank: int) -> frozenset[int]:
    """Returns the processes of all ranks of a launched run, given one rank's recording folder."""
    run_folder = out if rank == 0 else os.path.dirname(os.path.abspath(out))
    return frozenset(state.pid for state in read_all(run_folder).values())


def all_ended(states: dict[int, RankState]) -> bool:
    """Whether every expected rank has reported its outcome."""
    size = max((state.world_size for state in states.values()), default=1)
    return len(states) >= size and all(state.outcome is not None for state in states.values())
