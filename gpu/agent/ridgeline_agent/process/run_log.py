"""The program's output: the beginning and the end of it, within a limit, as bytes."""

from __future__ import annotations

import os
from collections import deque
from typing import IO

from ..failure.output_tail import MAX_BYTES, last_lines
from ..system.private_files import make_folder, private

FILE_NAME = "log.txt"


class RunLog:
    """Writes `log.txt`. The beginning is written immediately, so the user can follow it."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        # The line between both halves needs space too.
        self._max_tail_bytes = max_bytes // 2
        self._head_left = max(max_bytes - self._max_tail_bytes - 80, 0)
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._omitted_bytes = 0
        self._last = b""
        self._file: IO[bytes] | None = None
        try:
            make_folder(folder)
            path = os.path.join(folder, FILE_NAME)
            self._file = open(path, "wb", buffering=0, opener=private)  # noqa: SIM115
        except OSError:
            # A full disk, or the folder was deleted. The run itself reports that when it writes the
            # recording.
            self._file = None

    def write(self, data: bytes) -> None:
        """Takes the next output of the program."""
        self._last = (self._last + data[-MAX_BYTES:])[-MAX_BYTES - 1 :]
        head, rest = data[: self._head_left], data[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._append(head)
        if rest:
            self._head_left = 0
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while (
                self._tail_bytes - len(self._tail[0]) >= self._max_tail_bytes
                and len(self._tail) > 1
            ):
                dropped = self._tail.popleft()
                self._tail_bytes -= len(dropped)
                self._omitted_bytes += len(dropped)

    def last_lines(self, root: str) -> list[str]:
        """See output_tail."""
        return last_lines(self._last, root)

    def close(self) -> None:
        """Writes the end of the output, after a line with the number of omitted bytes."""
        tail = b"".join(self._tail)
        kept = tail[len(tail) - min(len(tail), self._max_tail_bytes) :]
        omitted_bytes = self._omitted_bytes + len(tail) - len(kept)
        if omitted_bytes:
            self._append(b"\n[... %d bytes left out ...]\n" % omitted_bytes)
        self._append(kept)
        if self._file is not None:
            self._file.close()
            self._file = None
        self._tail.clear()

    def _append(self, data: bytes) -> None:
        if self._file is None or not data:
            return
        try:
            self._file.write(data)
        except OSError:
            self._file.close()
            self._file = None
