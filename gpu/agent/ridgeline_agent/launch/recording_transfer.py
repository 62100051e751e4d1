"""Sends a recording back from another machine, as events between those of the run, and receives it.

Everything is sent over the standard streams of the command that started the agent there, such as
`ssh`: nothing listens on the network, and that command controls access.
"""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable
from typing import Any

from ..process.run_log import FILE_NAME as LOG

# The files of a recording (docs/recording.md). No others are accepted, because the names come from
# another machine.
_ALLOWED_NAME = re.compile(
    r"(rank-[0-9]{1,6}/)?(manifest\.json|trace\.json|lines\.bin|batch\.json)|log\.txt"
)
_CHUNK = 2**20
# A trace may have a gigabyte.
_MAX_BYTES = 16 * 2**30


def finished_with_files(
    finished: dict[str, Any], out: str, send: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Sends the recording files below `out`, and returns `finished`, to be sent after them."""
    for folder, folders, names in os.walk(out):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, out).replace(os.sep, "/")
            if _ALLOWED_NAME.fullmatch(shown) and not os.path.islink(path):
                _send(path, shown, send)
    return finished


def _send(path: str, name: str, send: Callable[[dict[str, Any]], None]) -> None:
    with open(path, "rb") as file:
        while True:
            data = file.read(_CHUNK)
            if not data:
                return
            packed = base64.b64encode(zlib.compress(data, 1)).decode("ascii")
            send({"event": "file", "path": name, "data": packed})


class ReceivedRecording:
    """Writes received files to the run's folder, and program output to `log`."""

    def __init__(self, out: str, log: Callable[[bytes], None]) -> None:
        self._out = out
        self._log = log
        self._started: set[str] = set()
        self._bytes = 0

    @property
    def has_begun(self) -> bool:
        """Whether anything was received."""
        return bool(self._started)

    def take(self, event: dict[str, Any]) -> None:
        """Takes the next piece of a file. Raises OSError if it does not belong to a recording."""
        name, packed = event.get("path"), event.get("data")
        if (
            not isinstance(name, str)
            or not _ALLOWED_NAME.fullmatch(name)
            or not isinstance(packed, str)
        ):
            raise OSError("the other machine sent a file that does not belong to a recording")
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(base64.b64decode(packed, validate=True), _CHUNK)
        except (ValueError, zlib.error):
            raise OSError("the other machine sent a damaged file") from None
        self._bytes += len(data)
        if self._bytes > _MAX_BYTES:
            raise OSError(f"the other machine sent more than {_MAX_BYTES} bytes")
        if name == LOG:
            self._log(data)
            return
        path = os.path.join(self._out, *name.split("/"))
        if name not in self._started:
            self._started.add(name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # The folder was emptied before, so an existing file of this name was started by this
        # transfer.
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, mode, 0o600), "ab") as file:
            file.write(data)
