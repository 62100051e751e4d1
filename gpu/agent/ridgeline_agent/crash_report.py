"""Where the program stood when a signal ended it, or when its time was over.

Python's faulthandler writes the stack from inside the signal handler; no Python code could run
there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
import time
from typing import Any

from .channel import take_descriptor
from .sources import UserCode
from .spec import RunSpec

_FILE_NAME = "stack.txt"
_LARGEST = 2**20
_LONGEST_ANSWER_SECONDS = 0.3
# The last but two of the real-time signals: nobody has been seen to use it.
_PLACE_SIGNAL: int | None = signal.SIGRTMAX - 2 if sys.platform.startswith("linux") else None
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def install(out: str) -> int | None:
    """From here on, a crash of this process leaves its stack in the folder of the run. The
    descriptor that it is written to.
    """
    try:
        small = os.open(os.path.join(out, _FILE_NAME), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        descriptor = take_descriptor(small)
        os.close(small)
    except OSError:
        return None  # A full disk: then a crash is told without its place.
    faulthandler.enable(descriptor, all_threads=False)
    if _PLACE_SIGNAL is not None:
        faulthandler.register(_PLACE_SIGNAL, descriptor, all_threads=False)
    return descriptor


def ask_for_place(process: int | None, out: str) -> None:
    """Has a running process write its stack, and waits a moment for it."""
    if process is None or _PLACE_SIGNAL is None:
        return
    path = os.path.join(out, _FILE_NAME)
    with contextlib.suppress(OSError):
        os.kill(process, _PLACE_SIGNAL)
        end = time.monotonic() + _LONGEST_ANSWER_SECONDS
        while os.path.getsize(path) == 0 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.01)  # The stack is written piece by piece.


def take(spec: RunSpec) -> list[dict[str, Any]]:
    """The user's frames that a crash or `ask_for_place` left, outermost first. Removes the file."""
    return take_from(spec.out, spec)


def take_from(out: str, spec: RunSpec) -> list[dict[str, Any]]:
    """The same of the process that had the folder `out`, such as a rank's."""
    path = os.path.join(out, _FILE_NAME)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST)
        os.unlink(path)
    except OSError:
        return []
    user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
    frames: list[dict[str, Any]] = []
    # One stack alone: where a program crashes in its own crash handler, more follow.
    for line in (
        text.partition("\n\n")[0].splitlines()
        if not text.startswith("Fatal")
        else text.splitlines()
    ):
        found = _FRAME.match(line)
        if found is None:
            continue
        shown = user_code.path(found.group(1))
        if shown is not None:
            frames.append({"path": shown, "line": int(found.group(2)), "name": found.group(3)})
    frames.reverse()
    return frames
