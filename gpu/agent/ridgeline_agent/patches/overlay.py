"""Replaces files with unsaved text.

While a program runs with an overlay, everything that reads one of its files gets the overlay's
text: imports, the script itself, tracebacks and `inspect`, and programs that open a settings file.
The files themselves are not touched. A program that opens one of them for writing gets the file,
and from then on reads what it wrote.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import builtins
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import linecache
import os
import sys
import tempfile
import tokenize
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

_FOR_WRITING = os.O_WRONLY | os.O_RDWR


class Overlay:
    """The texts, by the real paths of the files that they replace."""

    def __init__(self, root: str, texts: Mapping[str, str]) -> None:
        self._texts = {
            _key(os.path.join(root, path)): text.encode("utf-8", "surrogateescape")
            for path, text in texts.items()
        }
        # Most files that a program opens have other names, so the disk need not be checked.
        self._names = {os.path.basename(path) for path in self._texts}

    def text(self, path: Any) -> bytes | None:
        """Returns the text that replaces the file at this path, or None if there is none."""
        if not self._texts or isinstance(path, int):
            return None
        try:
            name = os.fsdecode(path)
        except TypeError:
            return None
        is_known = os.path.normcase(os.path.basename(name)) in self._names
        if not is_known and not os.path.islink(name):
            return None
        try:
            return self._texts.get(_key(name))
        except (OSError, ValueError):
            return None

    def install(self) -> None:
        """Installs the overlay. Call it in the program's process, before its first line."""
        if not self._texts:
            return
        self._patch_imports()
        self._patch_open()
        for path, text in self._texts.items():
            if path.endswith(".py"):
                # For files that do not exist yet. Existing ones are read through `tokenize.open`.
                lines = _decoded(text).splitlines(keepends=True)
                linecache.cache[path] = (len(text), None, lines, path)

    def _patch_imports(self) -> None:
        overlay = self
        loader: Any = importlib.machinery.SourceFileLoader
        path_stats, get_data = loader.path_stats, loader.get_data

        @functools.wraps(path_stats)
        def stats_of_files(self: Any, path: str) -> Any:
            if overlay.text(path) is not None:
                # Without a modification time, cached bytecode is neither used nor written.
                raise OSError("its text differs from the file")
            return path_stats(self, path)

        @functools.wraps(get_data)
        def data_or_text(self: Any, path: str) -> Any:
            text = overlay.text(path)
            return get_data(self, path) if text is None else text

        loader.path_stats, loader.get_data = stats_of_files, data_or_text
        sys.meta_path.insert(0, _NewModules(self))

    def _patch_open(self) -> None:
        original_open: Any = builtins.open
        original_code, original_os = io.open_code, os.open

        @functools.wraps(original_open)
        def open_text(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            text = self.text(file)
            if text is None:
                return original_open(file, mode, *args, **kwargs)
            if set(mode) & set("wax+"):
                self._forget(file)
                return original_open(file, mode, *args, **kwargs)
            # Through an opener, so the file object has the right name.
            held = text
            if len(args) < 6:
                kwargs["opener"] = lambda *_: _descriptor(held)
                return original_open(file, mode, *args, **kwargs)
            return original_open(file, mode, *args[:5], lambda *_: _descriptor(held))

        @functools.wraps(original_code)
        def open_code(path: str) -> Any:
            text = self.text(path)
            return original_code(path) if text is None else io.BytesIO(text)

        @functools.wraps(original_os)
        def open_descriptor(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            text = None if kwargs.get("dir_fd") is not None else self.text(path)
            if text is None:
                return original_os(path, flags, *args, **kwargs)
            if flags & _FOR_WRITING:
                self._forget(path)
                return original_os(path, flags, *args, **kwargs)
            return _descriptor(text)

        builtins.open = io.open = open_text
        # It imported `open` from builtins.
        tokenize._builtin_open = open_text  # type: ignore[attr-defined]
        io.open_code = open_code
        os.open = open_descriptor

    def _forget(self, path: Any) -> None:
        self._texts.pop(_key(os.fsdecode(path)), None)


class _NewModules(importlib.abc.MetaPathFinder):
    """Finds modules that are in the overlay but not on disk, such as a new file that was never
    saved.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        last = fullname.rpartition(".")[2]
        for folder in sys.path if path is None else path:
            for name in (os.path.join(last, "__init__.py"), last + ".py"):
                file = os.path.join(folder or os.getcwd(), name)
                if self._overlay.text(file) is not None and not os.path.exists(file):
                    return importlib.util.spec_from_file_location(fullname, file)
        return None


def _key(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8-sig", "replace")


def _descriptor(text: bytes) -> int:
    """Returns a descriptor of an anonymous file with the text, positioned at its start."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("overlay")
        view = memoryview(text)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())
