"""Decides which code is the user's, and numbers the user's files and functions in a recording."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import threading
import types
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from ..patches.overlay import Overlay
from ..system.forks import call_in_forked
from . import notebook_cells

# The folder of `ridgeline_agent` with all its packages.
_AGENT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_BOOT = os.path.join(os.path.dirname(_AGENT), "boot.py")
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]")
_CYTHON = (".pyx", ".pxd", ".pxi")
_NEWLINE = re.compile(rb"\r\n|\r|\n")
# Removed like whitespace from lines; analysis/python/src/lines.rs does the same.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _standard_library() -> list[str]:
    paths = sysconfig.get_paths()
    return [os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib") if name in paths]


class UserCode:
    """Decides by path whether code is the user's.

    User code is below one of `user_code` and below none of `not_user_code`. Installed packages
    count only if `user_packages` names them. The agent, the standard library and code without a
    file (`<string>`, `<frozen …>`) never count.
    """

    def __init__(
        self,
        root: str,
        user_code: Iterable[str],
        not_user_code: Iterable[str],
        user_packages: Iterable[str],
    ) -> None:
        self.root = os.path.realpath(root)
        self._cwd = os.getcwd()
        self._inside = [os.path.realpath(path) for path in user_code]
        self._outside = [os.path.realpath(path) for path in not_user_code]
        self._outside += [_AGENT, _BOOT, *_standard_library()]
        self._packages = frozenset(user_packages)
        self._paths: dict[str, str | None] = {}

    def path(self, filename: str) -> str | None:
        """Returns the display path for a code object's file, or None if it is not user code."""
        if filename not in self._paths:
            self._paths[filename] = self._decide(notebook_cells.path_of(filename))
        return self._paths[filename]

    def is_library(self, filename: str) -> bool:
        """Whether a code object's file is that of an installed library."""
        return self.path(filename) is None and bool(_INSTALLED.search(filename))

    def absolute(self, filename: str) -> str:
        """Resolves a code object's file name, relative to the program's initial folder."""
        return os.path.realpath(os.path.join(self._cwd, notebook_cells.path_of(filename)))

    def _decide(self, filename: str) -> str | None:
        if filename.startswith("<"):
            return None
        if not self._packages and _INSTALLED.search(filename):
            # The same result as below without resolving links: torch alone has 1,700 modules, and
            # resolving their paths took 280 ms per run.
            return None
        path = self.absolute(filename)
        if filename.endswith(_CYTHON) and not os.path.isfile(path):
            # Compiled elsewhere: the name is relative to the folder of the build.
            return None
        package = self._package(path)
        if package is not None:
            return package
        if _INSTALLED.search(path) or _INSTALLED.search(filename):
            return None
        # The longer of two prefixes decides: a project may be inside of what is not user code (a
        # workspace folder within `/usr/lib`), and the other way round (`.venv`).
        if _longest_prefix(path, self._inside) <= _longest_prefix(path, self._outside):
            return None
        return _shown(os.path.relpath(path, self.root))

    def _package(self, path: str) -> str | None:
        """Returns `site-packages/…` for a file of a package that counts as user code."""
        installed = _INSTALLED.split(path, maxsplit=1)
        if len(installed) == 2 and re.split(r"[/\\]", installed[1])[0] in self._packages:
            return _shown(os.path.join("site-packages", installed[1]))
        # An editable install is elsewhere. Its module has the path.
        for name in self._packages:
            for folder in _attribute(sys.modules.get(name), "__path__") or ():
                folder = os.path.realpath(folder)
                if _is_under(path, folder) and not _is_under(path, self.root):
                    inner = os.path.relpath(path, os.path.dirname(folder))
                    return _shown(os.path.join("site-packages", inner))
        return None


def _attribute(module: object, name: str) -> Any:
    """Returns an attribute that a module has, or None.

    Modules that import themselves on first use are not to be imported, which can fail.
    """
    try:
        return object.__getattribute__(module, "__dict__").get(name)
    except AttributeError:
        return None


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _longest_prefix(path: str, folders: list[str]) -> int:
    return max((len(folder) for folder in folders if _is_under(path, folder)), default=0)


def _shown(path: str) -> str:
    return path.replace(os.sep, "/")


class Sources:
    """Numbers files and code objects in the order of their first use."""

    def __init__(self, user_code: UserCode, overlay: Overlay) -> None:
        self.user_code = user_code
        self._overlay = overlay
        self._files: dict[str, int] = {}
        self._absolute: list[str] = []
        self._codes: dict[tuple[int, str, int], int] = {}
        # By object ID, because hashing a code object walks its whole bytecode. The list keeps the
        # objects alive, so that an ID is never reused.
        self._by_identity: dict[int, int | None] = {}
        self._keep_alive: list[types.CodeType] = []
        self._texts: dict[str, bytes | None] = {}
        # Threads of the program may add files concurrently.
        self._lock = threading.RLock()
        call_in_forked(self._forked)

    def _forked(self) -> None:
        # Another thread may have held the lock.
        self._lock = threading.RLock()

    def file(self, filename: str) -> int | None:
        """Returns the index of a user file, or None."""
        path = self.user_code.path(filename)
        if path is None:
            return None
        index = self._files.get(path)
        if index is not None:
            return index
        absolute = self.user_code.absolute(filename)
        with self._lock:
            if path not in self._files:
                self._absolute.append(absolute)
                self._files[path] = len(self._files)
            return self._files[path]

    def code(self, code: types.CodeType) -> int | None:
        """Returns the index of a code object, or None if it is not user code."""
        identity = id(code)
        if identity in self._by_identity:
            return self._by_identity[identity]
        file = self.file(code.co_filename)
        index = None
        if file is not None:
            # Code objects have no qualified name before Python 3.11.
            name = getattr(code, "co_qualname", code.co_name)
            key = (file, name, code.co_firstlineno)
            with self._lock:
                index = self._codes.setdefault(key, len(self._codes))
        self._keep_alive.append(code)
        self._by_identity[identity] = index
        return index

    def leave_out(self, code: types.CodeType) -> None:
        """Excludes a code object from user code, whatever file it names."""
        self._by_identity[id(code)] = None
        self._keep_alive.append(code)

    def user_lines(self, frame: types.FrameType | None) -> Iterator[tuple[int, int]]:
        """Yields `(file, line)` of the user's frames from `frame` outwards, innermost first."""
        while frame is not None:
            if self.code(frame.f_code) is not None:
                file = self.file(frame.f_code.co_filename)
                if file is not None:
                    yield (file, frame.f_lineno)
            frame = frame.f_back

    def innermost(self, frame: types.FrameType | None) -> tuple[int, int] | None:
        """Returns `(file, line)` of the user's innermost frame from `frame` outwards."""
        return next(self.user_lines(frame), None)

    def read_texts(self, since_ns: int) -> None:
        """Reads the files of all user modules that are imported by now.

        This happens early, because the user may edit files while the program runs. A file that
        changed after `since_ns`, when the run began, is not the text that ran: its text stays
        unknown.
        """
        files = [_attribute(module, "__file__") for module in list(sys.modules.values())]
        names = {name for name in files if isinstance(name, str)}
        names.update(self._absolute)
        # Also cells that have not run yet.
        names.update(notebook_cells.TEXTS)
        for name in names:
            is_source = name.endswith(".py") or name in notebook_cells.TEXTS
            if is_source and self.user_code.path(name):
                self._read_text(self.user_code.absolute(name), since_ns)

    def read_texts_of_files(self, since_ns: int) -> None:
        """Reads the files that have an index by now."""
        for path in self._absolute:
            self._read_text(path, since_ns)

    def _read_text(self, path: str, since_ns: int) -> None:
        if path not in self._texts:
            text = notebook_cells.TEXTS.get(path) or self._overlay.text(path)
            self._texts[path] = _text_before(path, since_ns) if text is None else text

    def text(self, file: int) -> bytes | None:
        """Returns the text of a file as it ran, or None if unknown."""
        return self._texts.get(self._absolute[file])

    def python(self, file: int) -> bytes | None:
        """Returns the text of a file as Python, without a notebook's magics."""
        return notebook_cells.PYTHON.get(self._absolute[file]) or self.text(file)

    def mention(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the pattern occurs in any text that was read."""
        return any(text is not None and pattern.search(text) for text in list(self._texts.values()))

    def paths(self) -> list[str]:
        """Returns the display paths of all files."""
        return list(self._files)

    def files_json(self) -> list[dict[str, object]]:
        """Returns `files` for the manifest."""
        return [
            {"path": path, "line_crc": line_checksums(self.text(index) or b"")}
            # Threads of the program may add files meanwhile.
            for path, index in list(self._files.items())
        ]

    def codes_json(self) -> list[dict[str, object]]:
        """Returns `codes` for the manifest."""
        return [
            {"file": file, "name": name, "first_line": line}
            for file, name, line in list(self._codes)
        ]


def line_checksums(text: bytes) -> list[int]:
    """Returns the crc32 of each stripped line; empty for an unknown (empty) text.

    Text in another encoding is read as UTF-8 with replacement characters, as editors do.
    """
    if not text:
        return []
    return [zlib.crc32(line.strip()) for line in _lines(text.decode(errors="replace").encode())]


def indentations(text: bytes) -> list[int]:
    """Returns the number of bytes before the first character of each line; empty for an unknown
    (empty) text.
    """
    return [len(line) - len(line.lstrip()) for line in _lines(text)] if text else []


def _lines(text: bytes) -> list[bytes]:
    if text.startswith(_BYTE_ORDER_MARK):
        text = text[len(_BYTE_ORDER_MARK) :]
    return _NEWLINE.split(text)


def _text_before(path: str, since_ns: int) -> bytes | None:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mtime_ns > since_ns:
                return None
            return file.read()
    except OSError:
        return None
