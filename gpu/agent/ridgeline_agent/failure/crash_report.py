"""The program's stack: at a crash or timeout, and while it starts.

Python's faulthandler writes the stack from inside the signal handler, where no Python code could
run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
from time import monotonic, sleep
from typing import Any

from ..program.sources import UserCode
from ..protocol.channel import take_descriptor
from ..protocol.spec import RunSpec

_FILE_NAME = "stack.txt"
# The supervisor empties the file after reading it, and the next stack goes to its start.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MAX_BYTES = 2**20
_MAX_WAIT_SECONDS = 0.3
# The third last real-time signal, which no known library uses.
_PLACE_SIGNAL: int | None = signal.SIGRTMAX - 2 if sys.platform.startswith("linux") else None
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def install(out: str) -> int | None:
    """From now on, a crash of this process writes its stack to the run's folder. Returns the file
    descriptor.
    """
    try:
        small = os.open(os.path.join(out, _FILE_NAME), _FLAGS, 0o600)
        descriptor = take_descriptor(small)
        os.close(small)
    except OSError:
        return None  # The disk is full: the crash is reported without its location.
    faulthandler.enable(descriptor, all_threads=False)
    if _PLACE_SIGNAL is not None:
        faulthandler.register(_PLACE_SIGNAL, descriptor, all_threads=False)
    return descriptor


def request_stack(process: int | None, out: str) -> None:
    """Makes a running process write its stack, and waits a moment for it."""
    if process is None or _PLACE_SIGNAL is None:
        return
    path = os.path.join(out, _FILE_NAME)
    with contextlib.suppress(OSError):
        os.kill(process, _PLACE_SIGNAL)
        end = monotonic() + _MAX_WAIT_SECONDS
        while os.path.getsize(path) == 0 and monotonic() < end:
            sleep(0.01)
        sleep(0.01)  # The stack is written piece by piece.


def current_place(process: int | None, spec: RunSpec) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the user's innermost frame in a running process, and what the library that it called
    is doing, if known.
    """
    request_stack(process, spec.out)
    path = os.path.join(spec.out, _FILE_NAME)
    text = _read(path)
    if text.startswith("Fatal"):
        return None, None  # It crashed: `take` reads that.
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    frames, current_activity = _parse(text, spec)
    return frames[-1] if frames else None, current_activity


def take(spec: RunSpec) -> tuple[list[dict[str, Any]], str | None]:
    """Returns the stack of a crash or of `request_stack`, and removes the file. See take_from."""
    return take_from(spec.out, spec)


def take_from(out: str, spec: RunSpec) -> tuple[list[dict[str, Any]], str | None]:
    """Like `take`, for the process with the folder `out`, such as a rank. Returns the user's
    frames, outermost first, and what the libraries below them were doing, if known.
    """
    path = os.path.join(out, _FILE_NAME)
    text = _read(path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return _parse(text, spec)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""


def _parse(text: str, spec: RunSpec) -> tuple[list[dict[str, Any]], str | None]:
    user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
    frames: list[dict[str, Any]] = []
    # Library frames below the user's innermost frame, and the frames that called it.
    below: list[tuple[str, str]] = []
    callers: list[tuple[str, str]] = []
    # Only the first stack. If a program crashes in its own crash handler, more follow.
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
        elif len(frames) < 2:
            one = (found.group(1).replace("\\", "/"), found.group(3))
            (callers if frames else below).append(one)
    frames.reverse()
    current_activity = activity(below)
    if current_activity is None and activity(callers) == "data":
        current_activity = "data"  # A data set of the user.
    return frames, current_activity if frames else None


def activity(frames: list[tuple[str, str]]) -> str | None:
    """Returns what a library does for the user's line, based on its frames (file, function),
    innermost first: "import NAME", or one of the words below.
    """
    importing = [at for at, (path, _) in enumerate(frames) if path.startswith(_IMPORTER)]
    if importing:
        # The module being imported is the file next to the importer's outermost frame.
        files = [path for path, _ in frames[: importing[-1]] if not path.startswith("<")]
        return f"import {_package(files[-1])}" if files else "import"
    for path, name in reversed(frames):
        for part, function, current_activity in _ACTIVITIES:
            if part in path and name.startswith(function):
                return current_activity
    return None


# (part of the file's path, prefix of the function's name) -> activity.
_ACTIVITIES = (
    ("/torch/utils/data/dataloader.py", "", "data"),
    ("/torch/_dynamo/", "", "compile"),
    ("/torch/_inductor/", "", "compile"),
    ("/torch/distributed/", "", "distributed"),
    ("/torch/multiprocessing/spawn.py", "join", "processes"),
    ("/multiprocessing/process.py", "join", "processes"),
    ("/multiprocessing/popen_fork.py", "", "processes"),
    ("/concurrent/futures/", "result", "processes"),
    ("/subprocess.py", "", "processes"),
    ("/urllib/request.py", "", "network"),
    ("/http/client.py", "", "network"),
    ("/requests/", "", "network"),
    ("/httpx/", "", "network"),
    ("/huggingface_hub/file_download.py", "", "network"),
)
_IMPORTER = "<frozen importlib"
_SITE = re.compile(r"/(?:site-packages|dist-packages|python3\.\d+)/(?:lib-dynload/)?")


def _package(path: str) -> str:
    inside = _SITE.split(path)[-1]
    return re.split(r"[/.]", inside.lstrip("/"))[0]
