"""The archive that a user with a GPU can attach to a bug report: the page, the checks, and the
recording of each program. It contains no paths, source text, environment variables, host names or
user names.
"""

from __future__ import annotations

import getpass
import gzip
import io
import os
import re
import socket
import sys
import tarfile
from pathlib import Path

# Files over this size are left out, so the bundle can be sent by mail.
LARGEST_MEMBER = 20_000_000
# An absolute path of two parts or more, on Linux and on Windows.
_PATH = re.compile(r"(?<![\w.<>/])(?:/[^\s/\"'`:,;()<>\\]+){2,}/?|\b[A-Za-z]:\\+[^\s\"'`,;()<>]+")
# Too short or too common to be replaced outside of paths.
_SHORTEST_NAME = 3


class Redactor:
    """Removes from a text what identifies the user or the machine."""

    def __init__(self) -> None:
        names = {socket.gethostname(), socket.gethostname().split(".")[0], _user()}
        names |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME")}
        names = {name for name in names if len(name) >= _SHORTEST_NAME and name != "localhost"}
        folders = {str(Path.home()), os.getcwd(), sys.prefix, os.environ.get("TMPDIR", "")}
        self._folders = sorted((one for one in folders if len(one) > 1), key=len, reverse=True)
        words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])") if words else None

    def text(self, text: str) -> str:
        for folder in self._folders:
            text = text.replace(folder, "<folder>")
        text = _PATH.sub("<path>", text)
        return self._names.sub("<name>", text) if self._names else text

    def is_clean(self, data: bytes) -> bool:
        """Whether binary data, which is not rewritten, contains no identifying text."""
        text = data.decode("latin-1")
        named = self._names is not None and self._names.search(text) is not None
        return not named and not any(folder in text for folder in self._folders)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user id without an entry, as in a container.
        return ""


class Bundle:
    """The archive under construction."""

    def __init__(self, file: Path) -> None:
        self._redactor = Redactor()
        self._archive = tarfile.open(file, "w:gz")  # noqa: SIM115 (closed by `close`)
        self.left_out: list[str] = []

    def text(self, name: str, text: str) -> None:
        self._add(name, self._redactor.text(text).encode())

    def recording(self, name: str, folder: Path) -> None:
        """Adds a recording's manifest, trace and line log. Its log has the program's output."""
        self.text(f"{name}/manifest.json", (folder / "manifest.json").read_text())
        trace = _read(folder, "trace.json")
        if trace is not None:
            redacted = self._redactor.text(trace.decode("utf-8", "replace")).encode()
            self._add(f"{name}/trace.json.gz", gzip.compress(redacted, mtime=0))
        lines = _read(folder, "lines.bin")
        if lines is not None and self._redactor.is_clean(lines):
            self._add(f"{name}/lines.bin.gz", gzip.compress(lines, mtime=0))

    def close(self) -> None:
        self._archive.close()

    def _add(self, name: str, data: bytes) -> None:
        if len(data) > LARGEST_MEMBER:
            self.left_out.append(name)
            return
        # A new entry has no owner name and no timestamp.
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        self._archive.addfile(entry, io.BytesIO(data))


def _read(folder: Path, name: str) -> bytes | None:
    """Reads a file of a recording, compressed or not. Returns None if there is none."""
    if (folder / name).exists():
        return (folder / name).read_bytes()
    if (folder / f"{name}.gz").exists():
        return gzip.decompress((folder / f"{name}.gz").read_bytes())
    return None
