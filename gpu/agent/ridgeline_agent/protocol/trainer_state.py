"""Which process of a run is recorded, and its progress: small files in the run's folder.

A program may train in child processes (`multiprocessing`). The first process that trains claims the
recording; the others run unrecorded. Files are used because a spawned process shares nothing else
with the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import asdict, dataclass
from json import dump, load, loads
from time import monotonic, sleep
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
_MAX_BYTES = 64 * 2**10
_MAX_MESSAGE_CHARS = 2000
# A recorded child stays until the supervisor ends the run. If it exited, it would close connections
# that the others need, and their errors would be the last ones in the log.
_MAX_WAIT_SECONDS = 20.0


@dataclass
class TrainerState:
    """The progress of the recorded child."""

    stage: str = STAGES[0]
    done: int = 0
    total: int = 0
    # Outcome as in the protocol; None while it runs.
    outcome: str | None = None
    message: str | None = None


def clear(out: str) -> None:
    """Removes the files of an earlier run in the same folder."""
    shutil.rmtree(os.path.join(out, FOLDER), ignore_errors=True)


def claim(out: str) -> bool:
    """Claims the recording. Returns whether this is the first process of its run that trains."""
    return _make(out, _CLAIM)


def is_claimed(out: str) -> bool:
    """Whether a process of the run has claimed the recording."""
    return os.path.exists(os.path.join(out, FOLDER, _CLAIM))


def count_trainer(out: str) -> None:
    """Reports that this child process trains, recorded or not."""
    _make(out, _TRAINS + str(os.getpid()))


def count_child(out: str) -> None:
    """Reports that this child process may start to train."""
    _make(out, _CHILD + str(os.getpid()))


def children(out: str) -> frozenset[int]:
    """Returns the child processes that have started or trained."""
    return frozenset(_processes(out, _CHILD) | _processes(out, _TRAINS))


def trainers(out: str) -> int:
    """Returns the number of child processes that train."""
    return len(_processes(out, _TRAINS))


def why_nothing_trains(out: str) -> str | None:
    """Returns a message if the program has child processes but none trains, else None."""
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
    """Whether a live child has not started to train yet."""
    return any(map(_is_alive, _processes(out, _CHILD) - _processes(out, _TRAINS)))


def _processes(out: str, kind: str) -> set[int]:
    try:
        names = os.listdir(os.path.join(out, FOLDER))
    except OSError:
        return set()
    numbers = [name[len(kind) :] for name in names if name.startswith(kind)]
    return {int(number) for number in numbers if number.isascii() and number.isdigit()}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def failure_folder(out: str) -> str | None:
    """Returns the folder for the manifest of the first child that failed before any process
    trained.
    """
    return os.path.join(out, FOLDER) if not is_claimed(out) and _make(out, _FAILED) else None


def take_failure(out: str) -> str | None:
    """Uses that manifest as the run's. Returns the exception's message, or None without one."""
    source = os.path.join(out, FOLDER, _MANIFEST)
    if is_claimed(out) or not os.path.exists(source):
        return None
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(source, encoding="utf-8") as file:
            failure: Any = load(file)["failure"]
        message = f"{failure['type']}: {failure['message']}"[:_MAX_MESSAGE_CHARS]
        os.replace(source, os.path.join(out, _MANIFEST))
        return message
    return None


def read(out: str) -> TrainerState | None:
    """Returns the state of the recorded child, or None if there is none."""
    # The program could write there too, so validate everything.
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(os.path.join(out, FOLDER, _STATE), encoding="utf-8") as file:
            value: Any = loads(file.read(_MAX_BYTES))
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
    """The recorder's host (host.Host) in a child. Only the recorded child writes its state."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._state = TrainerState()
        self.is_recorded = False

    def progress(self, stage: str, done: int, total: int) -> None:
        """See host.Host."""
        self._state.stage, self._state.done, self._state.total = stage, done, total
        self._write()

    def timed(self, iterations: int) -> None:
        """See host.Host. Programs with versions that take turns have no recorded children."""

    def ended(self, outcome: str, message: str | None = None) -> None:
        """Reports the outcome; the process continues to its own end."""
        self._state.outcome = outcome
        self._state.message = None if message is None else message[:_MAX_MESSAGE_CHARS]
        self._write()

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        """See host.Host. The supervisor ends all processes of the run."""
        self.ended(outcome, message)
        end = monotonic() + _MAX_WAIT_SECONDS
        while self.is_recorded and monotonic() < end:
            sleep(0.05)
        os._exit(0)

    def _write(self) -> None:
        if not self.is_recorded:
            return
        path = os.path.join(self._out, FOLDER, _STATE)
        with contextlib.suppress(OSError):
            with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
                dump(asdict(self._state), file)
            os.replace(path + ".part", path)
