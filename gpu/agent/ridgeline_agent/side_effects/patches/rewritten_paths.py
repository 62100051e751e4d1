"""Redirects writes through Python's own functions, where the kernel does not allow mounts. Each
changed file has a copy in the temporary folder under its full path, the shadow, which is also used
when it is read again.

Other programs and C libraries do not see the shadows. Where the kernel has Landlock
(sandbox/landlock.py), their other writes are denied.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..persistent_folders import is_within
from . import pathlib_functions

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Files are copied if they are changed in place. The kernel's overlay has no size limit.
_MAX_COPY_BYTES = 2**31
# A file in the temporary folder that lists deleted paths.
REMOVED = "removed"

_open = builtins.open
_real = {
    name: getattr(os, name)
    for name in (
        "access", "chmod", "link", "listdir", "lstat", "mkdir", "open", "readlink", "remove",
        "rename", "rmdir", "scandir", "stat", "symlink", "truncate", "utime",
    )
}  # fmt: skip


class Shadows:
    """Maps paths to their shadows. With `denies`, all writes fail."""

    def __init__(self, folder: str, through: list[str], denies: bool) -> None:
        self.upper = os.path.join(folder, "0-upper")
        self._through = through
        self._denies = denies
        self._removed: set[str] = set()
        _real["mkdir"](self.upper, 0o700)
        self._log = _open(os.path.join(folder, REMOVED), "ab", buffering=0)

    def to_read(self, path: Any) -> Any:
        """Returns the path to read."""
        name = self._name(path)
        if name is None:
            return path
        shadow = self.upper + name
        if self._is_hidden(name):
            return shadow
        # If a folder is in both places, the original has the attributes.
        in_both = _is_folder(shadow) and _is_folder(name)
        return shadow if _exists(shadow) and not in_both else path

    def to_write(self, path: Any, keeps: bool = True) -> Any:
        """Returns the path to write. With `keeps`, the existing contents are copied first."""
        name = self._name(path)
        if name is None:
            return path
        self._refuse(path)
        shadow = self.upper + name
        if _exists(shadow):
            return shadow
        self._make_parents(name, path)
        if not self._is_hidden(name) and _exists(name):
            if _is_folder(name):
                _real["mkdir"](shadow)
            elif os.path.islink(name):
                _real["symlink"](_real["readlink"](name), shadow)
            elif keeps:
                if _real["stat"](name).st_size > _MAX_COPY_BYTES:
                    raise OSError(errno.EFBIG, "too large to redirect", path)
                _copy(name, shadow)
        return shadow

    def list(self, path: Any) -> list[str] | None:
        """Returns the names in a folder that is partly redirected, or None if it is not."""
        name = self._name(path)
        if name is None or not (_is_folder(self.upper + name) or self._removed):
            return None
        if not self.exists(name):
            return None
        lower = [] if self._is_hidden(name) or not _is_folder(name) else _real["listdir"](name)
        names = {one for one in lower if self.exists(os.path.join(name, one))}
        if _is_folder(self.upper + name):
            names |= set(_real["listdir"](self.upper + name))
        return sorted(names)

    def exists(self, name: str) -> bool:
        """Whether the program sees a file or folder at this absolute path."""
        return _exists(self.upper + name) or (not self._is_hidden(name) and _exists(name))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        name = self._name(path)
        if name is None:
            return _real["mkdir"](path, mode)  # type: ignore[no-any-return]
        self._refuse(path)
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._make_parents(name, path)
        return _real["mkdir"](self.upper + name, mode)  # type: ignore[no-any-return]

    def remove(self, path: Any) -> None:
        """Removes a file or an empty folder."""
        name = self._name(path)
        if name is None:
            return (_real["rmdir"] if _is_folder(path) else _real["remove"])(path)  # type: ignore[no-any-return]
        self._refuse(path)
        if not self.exists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        shadow = self.upper + name
        if _is_folder(shadow) or (not _exists(shadow) and _is_folder(name)):
            names = self.list(path)
            if _real["listdir"](name) if names is None else names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if _exists(shadow):
            (_real["rmdir"] if _is_folder(shadow) else _real["remove"])(shadow)
        self._hide(name)
        return None

    def rename(self, source: Any, target: Any) -> None:
        """Renames a file. A folder is copied, like `mv` between file systems."""
        before, after = self._name(source), self._name(target)
        if before is None and after is None:
            return _real["rename"](source, target)  # type: ignore[no-any-return]
        self._refuse(target)
        found = self.to_read(source)
        if not _is_folder(found):
            if before is None or not found.startswith(self.upper):
                _copy(found, self.to_write(target, keeps=False))
                self.remove(source)
                return None
            goal = target if after is None else self.to_write(target, keeps=False)
            shutil.move(found, goal) if after is None else _real["rename"](found, goal)
            if before is not None:
                self._hide(before)
            return None
        if after is not None and self.exists(after):
            self.remove(target)
        self.mkdir(target)
        for name in self.list(source) or _real["listdir"](found):
            self.rename(os.path.join(source, name), os.path.join(target, name))
        self.remove(source)
        return None

    def _name(self, path: Any) -> str | None:
        """Returns the full path if it is redirected, with links in its parents resolved."""
        try:
            text = os.fsdecode(path)
        except TypeError:
            return None
        if not text or "\0" in text:
            return None
        folder, name = os.path.split(os.path.abspath(text))
        full_path = os.path.join(os.path.realpath(folder), name)
        if any(is_within(full_path, one) for one in self._through):
            return None
        return full_path

    def _make_parents(self, name: str, path: Any) -> None:
        parent = os.path.dirname(name)
        if not self.exists(parent):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        missing = []
        while not _exists(self.upper + parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for folder in reversed(missing):
            _real["mkdir"](self.upper + folder)

    def _is_hidden(self, name: str) -> bool:
        """Whether the original, or a folder above it, was deleted."""
        while name not in self._removed:
            above = os.path.dirname(name)
            if above == name or not self._removed:
                return False
            name = above
        return True

    def _hide(self, name: str) -> None:
        if _exists(name) and name not in self._removed:
            self._removed.add(name)
            self._log.write(os.fsencode(name) + b"\0")

    def _refuse(self, path: Any) -> None:
        if self._denies:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class _Entries:
    """The result of `os.scandir` for a folder that is in both places."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing; the real iterator has it."""


def install(folder: str, through: list[str], denies: bool) -> Shadows:
    """From now on, Python's functions write into `folder`, except for paths in `through`."""
    shadows = Shadows(folder, [*through, folder], denies)
    for name in ("access", "lstat", "readlink", "stat"):
        _patch(name, _first_path(_real[name], shadows.to_read))
    for name in ("chmod", "truncate", "utime"):
        _patch(name, _first_path(_real[name], shadows.to_write))
    for name, function in (
        ("mkdir", shadows.mkdir), ("rmdir", shadows.remove), ("remove", shadows.remove),
        ("unlink", shadows.remove), ("rename", shadows.rename), ("replace", shadows.rename),
    ):  # fmt: skip
        _patch(name, _plain(_real.get(name, os.unlink), function))
    _patch("open", _opening(shadows))
    _patch("listdir", _listing(shadows))
    _patch("scandir", _scanning(shadows))
    _patch("symlink", _second_path(_real["symlink"], shadows))
    _patch("link", _second_path(_real["link"], shadows))
    # Otherwise shutil uses descriptors of folders.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    _patch_open(shadows)
    _patch_libraries(shadows)
    pathlib_functions.install()
    return shadows


def _patch(name: str, function: Callable[..., Any]) -> None:
    setattr(os, name, function)


def _is_plain(path: Any, keywords: dict[str, Any]) -> bool:
    return not isinstance(path, int) and not any(
        keywords.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")
    )


def _first_path(real: Callable[..., Any], place: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def redirected(path: Any, *args: Any, **kwargs: Any) -> Any:
        return real(place(path) if _is_plain(path, kwargs) else path, *args, **kwargs)

    return redirected


def _second_path(real: Callable[..., Any], shadows: Shadows) -> Callable[..., Any]:
    @functools.wraps(real)
    def redirected(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_plain(target, kwargs):
            target = shadows.to_write(target, keeps=False)
            source = source if real is _real["symlink"] else shadows.to_read(source)
        return real(source, target, *args, **kwargs)

    return redirected


def _plain(real: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def redirected(path: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = function if _is_plain(path, kwargs) else real
        keywords = {name: one for name, one in kwargs.items() if not name.endswith("dir_fd")}
        return chosen(path, *args, **(keywords if chosen is function else kwargs))

    return redirected


def _opening(shadows: Shadows) -> Callable[..., int]:
    @functools.wraps(os.open)
    def open_here(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if _is_plain(path, kwargs):
            writes = bool(flags & _WRITING)
            # Folders can only be opened for reading, and temporary files have no name.
            keeps = not flags & os.O_TRUNC
            path = shadows.to_write(path, keeps) if writes else shadows.to_read(path)
        return _real["open"](path, flags, *args, **kwargs)  # type: ignore[no-any-return]

    return open_here


def _listing(shadows: Shadows) -> Callable[..., list[Any]]:
    @functools.wraps(os.listdir)
    def listdir(path: Any = ".") -> list[Any]:
        names = shadows.list(path) if _is_plain(path, {}) else None
        if names is None:
            return _real["listdir"](shadows.to_read(path) if _is_plain(path, {}) else path)  # type: ignore[no-any-return]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    return listdir


def _scanning(shadows: Shadows) -> Callable[..., Any]:
    @functools.wraps(os.scandir)
    def scandir(path: Any = ".") -> Any:
        names = shadows.list(path) if _is_plain(path, {}) else None
        if names is None:
            return _real["scandir"](shadows.to_read(path) if _is_plain(path, {}) else path)
        found: dict[str, Any] = {}
        name = os.path.realpath(os.fsdecode(path))
        for folder in (name, shadows.upper + name):
            if _is_folder(folder):
                with _real["scandir"](folder) as entries:
                    found.update((os.fsdecode(entry.name), entry) for entry in entries)
        return _Entries([found[one] for one in names if one in found])

    return scandir


def _patch_open(shadows: Shadows) -> None:
    @functools.wraps(_open)
    def open_here(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(file, int):
            writes = bool(set(mode) & set("wax+"))
            if "x" in mode and shadows.to_read(file) is not file:
                pass
            elif writes:
                file = shadows.to_write(file, keeps="w" not in mode)
            else:
                file = shadows.to_read(file)
        return _open(file, mode, *args, **kwargs)

    builtins.open = io.open = open_here  # type: ignore[assignment]


def _patch_libraries(shadows: Shadows) -> None:
    """Patches common libraries that write files in C++."""
    import sqlite3

    import torch

    def with_path(module: Any, name: str, position: int, writes: bool) -> None:
        real = getattr(module, name)

        @functools.wraps(real)
        def redirected(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position and isinstance(args[position], (str, os.PathLike)):
                path = os.fspath(args[position])
                place = shadows.to_write(path) if writes else shadows.to_read(path)
                args = (*args[:position], place, *args[position + 1 :])
            return real(*args, **kwargs)

        setattr(module, name, redirected)

    with_path(torch, "save", 1, writes=True)
    with_path(torch, "load", 0, writes=False)
    with_path(sqlite3, "connect", 0, writes=True)
    if "numpy" in sys.modules:
        with_path(sys.modules["numpy"], "fromfile", 0, writes=False)


def _copy(source: str, target: str) -> None:
    with _open(source, "rb") as before, _open(target, "wb") as copy:
        shutil.copyfileobj(before, copy, 2**20)
    _real["chmod"](target, _real["stat"](source).st_mode & 0o7777)


def _exists(path: Any) -> bool:
    try:
        _real["lstat"](path)
    except (OSError, ValueError):
        return False
    return True


def _is_folder(path: Any) -> bool:
    import stat

    try:
        return stat.S_ISDIR(_real["lstat"](path).st_mode)
    except (OSError, ValueError):
        return False
