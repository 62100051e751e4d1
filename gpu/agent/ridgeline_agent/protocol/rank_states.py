"""What each rank of a launched run tells while it runs: a small file of its own in one folder.

Files, because ranks have nothing else in common: their launcher starts them, and their standard
streams are its own. A folder that all of them see is what a launcher of several machines needs
anyway.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from ..system.private_files import private
from .host import STAGES

FOLDER = "ranks"
# What the launcher's ranks read to know what to run. It holds the configuration's variables.
REQUEST = "launch.json"
_LARGEST = 64 * 2**10
_MOST_MESSAGE = 2000


@dataclass
class RankState:
    """How far a rank is."""

    rank: int
    world_size: int
    pid: int
    stage: str = "starting"
    done: int = 0
    total: int = 0
    # How it ended, as in the protocol; None while it runs.
    outcome: str | None = None
    message: str | None = None


def how_far(state: RankState) -> tuple[int, int]:
    """Orders ranks by how far they are."""
    stage = STAGES.index(state.stage) if state.stage in STAGES else 0
    return stage, state.done


def rank_folder(out: str, rank: int) -> str:
    """Where a rank's recording is: the first one's is the run's, and the others' are within it."""
    return out if rank == 0 else os.path.join(out, f"rank-{rank}")


def write(out: str, state: RankState) -> None:
    """Puts the file there whole. `out` is the folder of the whole run."""
    path = os.path.join(out, FOLDER, f"{state.rank}.json")
    state.message = None if state.message is None else state.message[:_MOST_MESSAGE]
    with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
        json.dump(asdict(state), file)
    os.replace(path + ".part", path)


def read_all(out: str) -> dict[int, RankState]:
    """The states that there are, by rank. A file that is none is left out."""
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
    # The program could write there, too, so nothing is taken on trust.
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError):
        with open(path, encoding="utf-8") as file:
            value: Any = json.loads(file.read(_LARGEST))
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
    """The processes of all ranks of a launched run, by the recording's folder of one of them."""
    run_folder = out if rank == 0 else os.path.dirname(os.path.abspath(out))
    return frozenset(state.pid for state in read_all(run_folder).values())


def all_ended(states: dict[int, RankState]) -> bool:
    """Whether every rank that there should be has said how it ended."""
    size = max((state.world_size for state in states.values()), default=1)
    return len(states) >= size and all(state.outcome is not None for state in states.values())
