"""Runs hostile programs in the sandbox."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_driver import Agent, log
from estimate_helpers import TRAINING, estimate

# Helpers of the programs that call libc directly, which bypasses everything patched in Python.
TOOLS = """\
import ctypes, os, signal, sys, time, torch
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print(f"{name}: refused ({type(error).__name__}: {error})", flush=True)
    else:
        print(f"{name}: {result}", flush=True)
def call(function, *arguments):
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def write(path, text=b"changed"):
    descriptor = call(libc.open, os.fsencode(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    libc.write(descriptor, text, len(text))
    libc.close(descriptor)
"""


def run_attempts(agent: Agent, folder: Path, text: str, **keys: Any) -> str:
    """Estimates a program, which must reach its training loop, and returns its output."""
    finished = estimate(agent, folder, TOOLS + text + TRAINING, **keys)
    printed = log(folder).decode()
    assert finished["outcome"] == "complete", (finished, printed)
    return printed


@contextmanager
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    """An unrelated process of the same user."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def files(folder: Path) -> dict[str, bytes]:
    """The contents of all files except for the script and the estimate's output."""
    out = folder / "out"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and out not in path.parents and path.name != "train.py"
    }
