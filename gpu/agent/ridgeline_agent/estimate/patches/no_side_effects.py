"""Makes the effects of an estimated program seem to succeed.

The sandbox denies all effects (sandbox/confinement.py). Here the usual ones seem to succeed,
because a program that creates a folder for its logs must still be estimated: writes go to files of
the estimate and are read back from there; folders are not created and nothing is removed; instead
of other programs, one that does nothing is run.

This is not a security boundary: a list of Python's functions is never complete. It is the only
protection if the user allows estimates without a sandbox; then effects that bypass it, but that
Python audits, are denied too.
Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import os
import socket
import subprocess
import sys
import tokenize
from collections.abc import Callable
from typing import Any

import torch

try:
    import sqlite3
except ImportError:  # A Python that was built without it.
    sqlite3 = None  # type: ignore[assignment]

from ...sandbox.confinement import MAX_FILE_BYTES
from ...side_effects.patches import pathlib_functions
from . import fake_process_group, without_shared_memory

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Libraries that would otherwise wait for the network.
_OFFLINE = {
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
_HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr")
_IGNORED = (
    "mkdir", "rmdir", "remove", "unlink", "rename", "replace", "truncate", "symlink", "link",
    "chmod", "chown", "utime", "mkfifo", "mknod",
)  # fmt: skip
# Events of Python's audit hooks, by module.
_REFUSED = (
    "os.exec", "os.posix_spawn", "os.spawn", "os.remove", "os.rename", "os.rmdir", "os.truncate",
    "os.mkdir", "os.link", "os.symlink", "os.startfile", "socket.connect", "socket.getaddrinfo",
)  # fmt: skip


def install(out: str, confined: bool) -> None:
    """From now on, the program's effects only seem to happen. Its writes go below `out`."""
    out = os.path.realpath(out)
    sys.dont_write_bytecode = True
    os.environ.update(_OFFLINE)
    torch.save = lambda *_, **__: None
    _redirect_writing(out)
    for name in _IGNORED:
        if hasattr(os, name):
            setattr(os, name, _ignore_outside(out, getattr(os, name)))
    pathlib_functions.install()
    _patch_subprocesses()
    fake_process_group.install()
    if confined:
        without_shared_memory.install()
    else:
        sys.addaudithook(_refuser(out))


def _ignore_outside(out: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Applies a function to the estimate's own files, and ignores other files."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        paths = [os.fsdecode(one) for one in values if isinstance(one, (str, bytes, os.PathLike))]
        if (folder := kwargs.get("dir_fd")) is not None:
            # As called by `shutil.rmtree`.
            paths = [os.path.join(f"/proc/self/fd/{folder}", path) for path in paths]
        if paths and all(_is_ours(os.path.realpath(path), out) for path in paths):
            return function(*args, **kwargs)
        return None

    return quiet


def _redirect_writing(out: str) -> None:
    folder = os.path.join(out, "written")
    os.makedirs(folder, exist_ok=True)
    numbers = itertools.count()
    written: dict[str, str] = {}
    open_file: Any = builtins.open
    open_descriptor = os.open

    def place(path: Any, writes: bool) -> Any:
        """Returns the path where the program finds the file."""
        try:
            name = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError):
            return path
        if name in written or not writes or _is_ours(name, out):
            return written.get(name, path)
        written[name] = os.path.join(folder, str(next(numbers)))
        if os.path.isfile(name) and os.path.getsize(name) < MAX_FILE_BYTES:
            # It may be appended to or changed in place.
            with open_file(name, "rb") as before, open_file(written[name], "wb") as copy:
                copy.write(before.read())
        return written[name]

    @functools.wraps(open_file)
    def open_here(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = bool(set(mode) & set("wax+"))
        if isinstance(file, int) or not (writes or written):
            return open_file(file, mode, *args, **kwargs)
        return open_file(place(file, writes), mode, *args, **kwargs)

    @functools.wraps(open_descriptor)
    def open_descriptor_here(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        writes = bool(flags & _WRITING)
        if kwargs.get("dir_fd") is None and (writes or written):
            path = place(path, writes)
        return open_descriptor(path, flags, *args, **kwargs)

    builtins.open = io.open = tokenize._builtin_open = open_here  # type: ignore[attr-defined]
    os.open = open_descriptor_here
    if sqlite3 is None:
        return
    connect: Any = sqlite3.connect

    @functools.wraps(connect)
    def connect_here(database: Any, *args: Any, **kwargs: Any) -> Any:
        # Only SQLite knows which file a `uri` refers to.
        if not kwargs.get("uri") and database not in ("", ":memory:"):
            database = place(database, writes=True)
        return connect(database, *args, **kwargs)

    sqlite3.connect = sqlite3.dbapi2.connect = connect_here  # type: ignore[attr-defined]


def _is_ours(path: str, out: str) -> bool:
    return path.startswith((out + os.sep, "/proc/self/")) or path in _HARMLESS_DEVICES


def _patch_subprocesses() -> None:
    """Replaces other programs by one that succeeds and prints nothing."""
    start: Any = subprocess.Popen.__init__

    @functools.wraps(start)
    def start_no_op(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("args", None)
        kwargs.update(executable=None, shell=False, cwd=None)
        start(self, [sys.executable, "-S", "-c", ""], *args[1:2], **kwargs)

    subprocess.Popen.__init__ = start_no_op  # type: ignore[method-assign]
    os.system = lambda *_: 0
    socket.socket.__init__ = _no_socket(socket.socket.__init__)  # type: ignore[method-assign]


def _no_socket(make: Callable[..., None]) -> Callable[..., None]:
    """Raises the error that programs expect without a network. They may not expect the kernel's
    (operation not permitted).
    """

    @functools.wraps(make)
    def refused(self: Any, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None):  # type: ignore[no-untyped-def]
        if fileno is None:
            raise ConnectionRefusedError("an estimate does not open connections")
        make(self, family, type, proto, fileno)

    return refused


def _refuser(out: str) -> Callable[[str, tuple[Any, ...]], None]:
    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            writes = isinstance(flags, int) and bool(flags & _WRITING)
            if not writes or not isinstance(path, (str, bytes)):
                return
            if not _is_ours(os.path.realpath(os.fsdecode(path)), out):
                raise PermissionError("an estimate does not change files")
        elif event.startswith(_REFUSED):
            if event == "socket.connect" and not isinstance(args[1], tuple):
                return  # A Unix socket of this machine.
            paths = [one for one in args if isinstance(one, str)]
            if paths and all(_is_ours(os.path.realpath(path), out) for path in paths):
                return
            raise PermissionError(f"an estimate does not change anything ({event})")

    return refuse
