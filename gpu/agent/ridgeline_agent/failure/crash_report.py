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

from ..program.sources import UserCode
from ..protocol.channel import take_descriptor
from ..protocol.spec import RunSpec

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


def take(spec: RunSpec) -> tuple[list[dict[str, Any]], str | None]:
    """What a crash or `ask_for_place` left. Removes the file. See take_from."""
    return take_from(spec.out, spec)


def take_from(out: str, spec: RunSpec) -> tuple[list[dict[str, Any]], str | None]:
    """The same of the process that had the folder `out`, such as a rank's: the user's frames,
    outermost first, and what the libraries below them were doing, where that is known.
    """
    path = os.path.join(out, _FILE_NAME)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST)
        os.unlink(path)
    except OSError:
        return [], None
    user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
    frames: list[dict[str, Any]] = []
    # What stood below the user's innermost frame, and what called that.
    below: list[tuple[str, str]] = []
    callers: list[tuple[str, str]] = []
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
        elif len(frames) < 2:
            one = (found.group(1).replace("\\", "/"), found.group(3))
            (callers if frames else below).append(one)
    frames.reverse()
    doing = activity(below)
    if doing is None and activity(callers) == "data":
        doing = "data"  # A data set of the user's own.
    return frames, doing if frames else None


def activity(frames: list[tuple[str, str]]) -> str | None:
    """What a library does for the user's line, by its frames (file, function), innermost first:
    "import NAME", or one of the words below.
    """
    importing = [at for at, (path, _) in enumerate(frames) if path.startswith(_IMPORTER)]
    if importing:
        # The module whose body runs is the file next to the outermost of the importer's frames.
        files = [path for path, _ in frames[: importing[-1]] if not path.startswith("<")]
        return f"import {_package(files[-1])}" if files else "import"
    for path, name in reversed(frames):
        for part, function, doing in _ACTIVITIES:
            if part in path and name.startswith(function):
                return doing
    return None


# (a part of the file's path, how the function's name begins) -> what it is for.
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
