"""Keeps a program that is only estimated from changing anything.

Its text is half typed. What it writes goes into files of the estimate's own, and is found there
when it is read again; folders are not made and nothing is removed; other programs are not started,
and no connection is made. All of that seems to succeed, because a program that makes a folder for
its logs is to be estimated all the same. What goes past these ways is refused.
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

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Checkpoints are left out; what is left is logs.
_LARGEST_FILE = 256 * 2**20

# Libraries that would otherwise wait for the network.
_OFFLINE = {
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
_QUIETLY_NOTHING = (
    "mkdir", "rmdir", "remove", "unlink", "rename", "replace", "truncate", "symlink", "link",
    "chmod", "chown", "utime", "mkfifo", "mknod",
)  # fmt: skip
# Events of Python's audit hooks, by the module that tells of them.
_REFUSED = (
    "os.exec", "os.posix_spawn", "os.spawn", "os.remove", "os.rename", "os.rmdir", "os.truncate",
    "os.mkdir", "os.link", "os.symlink", "os.startfile", "socket.connect", "socket.getaddrinfo",
)  # fmt: skip


def install(out: str) -> None:
    """From now on this process changes nothing outside of the folder `out`."""
    sys.dont_write_bytecode = True
    os.environ.update(_OFFLINE)
    torch.save = lambda *_, **__: None
    _redirect_writing(os.path.realpath(out))
    for name in _QUIETLY_NOTHING:
        if hasattr(os, name):
            setattr(os, name, _nothing)
    _start_nothing()
    _limit_files()
    sys.addaudithook(_refuser(os.path.realpath(out)))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _redirect_writing(out: str) -> None:
    folder = os.path.join(out, "written")
    os.makedirs(folder, exist_ok=True)
    numbers = itertools.count()
    written: dict[str, str] = {}
    open_file: Any = builtins.open
    open_descriptor = os.open

    def place(path: Any, writes: bool) -> Any:
        """Where the program is to find the file."""
        try:
            name = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError):
            return path
        if name in written or not writes or _is_ours(name, out):
            return written.get(name, path)
        written[name] = os.path.join(folder, str(next(numbers)))
        if os.path.isfile(name) and os.path.getsize(name) < _LARGEST_FILE:
            # It may be appended to, or changed in place.
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


def _is_ours(path: str, out: str) -> bool:
    return path.startswith((out + os.sep, "/dev/", "/proc/self/"))


def _start_nothing() -> None:
    """In the place of another program runs one that ends well and prints nothing."""
    start: Any = subprocess.Popen.__init__

    @functools.wraps(start)
    def nothing_else(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("args", None)
        kwargs.update(executable=None, shell=False, cwd=None)
        start(self, [sys.executable, "-S", "-c", ""], *args[1:2], **kwargs)

    subprocess.Popen.__init__ = nothing_else  # type: ignore[method-assign]
    os.system = lambda *_: 0
    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, _unconnected(getattr(socket.socket, name)))


def _unconnected(connect: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(connect)
    def refused(self: Any, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            raise ConnectionRefusedError("an estimate makes no connection")
        return connect(self, address)

    return refused


def _limit_files() -> None:
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if most == resource.RLIM_INFINITY or most > _LARGEST_FILE:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, most))


def _refuser(out: str) -> Callable[[str, tuple[Any, ...]], None]:
    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            writes = isinstance(flags, int) and bool(flags & _WRITING)
            if not writes or not isinstance(path, (str, bytes)):
                return
            if not _is_ours(os.path.realpath(os.fsdecode(path)), out):
                raise PermissionError("an estimate changes no file")
        elif event.startswith(_REFUSED):
            if event == "socket.connect" and not isinstance(args[1], tuple):
                return  # A socket of this machine's own.
            paths = [one for one in args if isinstance(one, str)]
            if paths and all(_is_ours(os.path.realpath(path), out) for path in paths):
                return
            raise PermissionError(f"an estimate changes nothing ({event})")

    return refuse
