"""Which process of a run is recorded, and how far it is: small files in the run's folder.

A program may train in processes that it starts (`multiprocessing`). The first process that trains
claims the recording; the others run along. Files, because a process that is started afresh shares
nothing else with the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from ..system.private_files import private
from .host import STAGES

FOLDER = "trainer"
_CLAIM = "claim"
_STATE = "state.json"
_CHILD = "child-"
_TRAINS = "trains-"
_FAILED = "failed"
_MANIFEST = "manifest.json"
_LARGEST = 64 * 2**10
_MOST_MESSAGE = 2000
# A child that was recorded stays until the supervisor ends the run: its end would close connections
# that the others need, and their errors would be the last that the log tells.
_LONGEST_STAY_SECONDS = 20.0


@dataclass
class TrainerState:
    """How far the child is that is recorded."""

    stage: str = STAGES[0]
    done: int = 0
    total: int = 0
    # How it ended, as in the protocol; None while it runs.
    outcome: str | None = None
    message: str | None = None


def clear(out: str) -> None:
    """Forgets an earlier run into the same folder."""
    shutil.rmtree(os.path.join(out, FOLDER), ignore_errors=True)


def claim(out: str) -> bool:
    """Whether this process is the first of its run that trains."""
    return _make(out, _CLAIM)


def is_claimed(out: str) -> bool:
    """Whether a process of the run trains."""
    return os.path.exists(os.path.join(out, FOLDER, _CLAIM))


def count_trainer(out: str) -> None:
    """Tells that this child process trains, recorded or not."""
    _make(out, _TRAINS + str(os.getpid()))


def count_child(out: str) -> None:
    """Tells that this child process may come to train."""
    _make(out, _CHILD + str(os.getpid()))


def children(out: str) -> frozenset[int]:
    """The child processes that were seen to begin or to train."""
    return frozenset(_processes(out, _CHILD) | _processes(out, _TRAINS))


def trainers(out: str) -> int:
    """How many child processes train."""
    return len(_processes(out, _TRAINS))


def why_none_trains(out: str) -> str | None:
    """What to say of a program whose children don't train; None where it has none, or one does."""
    count = len(_processes(out, _CHILD))
    if count == 0 or is_claimed(out):
        return None
    what = "1 child process" if count == 1 else f"{count} child processes"
    return (
        f"the program started {what}, but none ran a backward pass or an optimizer step. A child "
        "process that only "
        "calls a model is not profiled: call it in the program's main process"
    )


def may_train(out: str) -> bool:
    """Whether a child is there that does not train yet."""
    return any(map(_is_there, _processes(out, _CHILD) - _processes(out, _TRAINS)))


def _processes(out: str, kind: str) -> set[int]:
    try:
        names = os.listdir(os.path.join(out, FOLDER))
    except OSError:
        return set()
    numbers = [name[len(kind) :] for name in names if name.startswith(kind)]
    return {int(number) for number in numbers if number.isascii() and number.isdigit()}


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def failure_folder(out: str) -> str | None:
    """The folder for the manifest of the first child that failed before any process trained."""
    return os.path.join(out, FOLDER) if not is_claimed(out) and _make(out, _FAILED) else None


def take_failure(out: str) -> str | None:
    """Takes that manifest for the run's. What was raised, or None where nothing was."""
    source = os.path.join(out, FOLDER, _MANIFEST)
    if is_claimed(out) or not os.path.exists(source):
        return None
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(source, encoding="utf-8") as file:
            failure: Any = json.load(file)["failure"]
        message = f"{failure['type']}: {failure['message']}"[:_MOST_MESSAGE]
        os.replace(source, os.path.join(out, _MANIFEST))
        return message
    return None


def read(out: str) -> TrainerState | None:
    """What the recorded child has told; None where there is none."""
    # The program could write there, too, so nothing is taken on trust.
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(os.path.join(out, FOLDER, _STATE), encoding="utf-8") as file:
            value: Any = json.loads(file.read(_LARGEST))
        state = TrainerState(**value)
        texts = [state.stage, state.outcome or "", state.message or ""]
        numbers = [state.done, state.total]
        is_known = state.stage in STAGES and all(type(one) is int for one in numbers)
        if is_known and all(isinstance(one, str) for one in texts):
            return state
    return None


def _make(out: str, name: str) -> bool:
    folder = os.path.join(out, FOLDER)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        os.close(os.open(os.path.join(folder, name), flags, 0o600))
    except FileExistsError:
        return False
    return True


class ChildHost:
    """The recorder's host (host.Host) in a child process. What one tells that is not recorded
    concerns nobody.
    """

    def __init__(self, out: str) -> None:
        self._out = out
        self._state = TrainerState()
        self.is_recorded = False

    def progress(self, stage: str, done: int, total: int) -> None:
        """See host.Host."""
        self._state.stage, self._state.done, self._state.total = stage, done, total
        self._write()

    def timed(self, iterations: int) -> None:
        """See host.Host. Versions that take turns have no children that are recorded."""

    def ended(self, outcome: str, message: str | None = None) -> None:
        """Tells the outcome; the process goes on to its own end."""
        self._state.outcome = outcome
        self._state.message = None if message is None else message[:_MOST_MESSAGE]
        self._write()

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        """See host.Host. The supervisor ends all processes of the run."""
        self.ended(outcome, message)
        end = time.monotonic() + _LONGEST_STAY_SECONDS
        while self.is_recorded and time.monotonic() < end:
            time.sleep(0.05)
        os._exit(0)

    def _write(self) -> None:
        if not self.is_recorded:
            return
        path = os.path.join(self._out, FOLDER, _STATE)
        with contextlib.suppress(OSError):
            with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
                json.dump(asdict(self._state), file)
            os.replace(path + ".part", path)
