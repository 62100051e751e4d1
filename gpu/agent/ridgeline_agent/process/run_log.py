"""What the program printed: the beginning and the end of it, within a limit, as bytes."""

from __future__ import annotations

import os
from collections import deque
from typing import IO

from ..failure.output_tail import MOST_BYTES, last_lines
from ..system.private_files import make_folder, private

FILE_NAME = "log.txt"


class RunLog:
    """Writes `log.txt`. The beginning is written as it comes, so that a person can read along."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        # The line between both halves needs room as well.
        self._most_tail = most_bytes // 2
        self._head_left = max(most_bytes - self._most_tail - 80, 0)
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._left_out = 0
        self._last = b""
        self._file: IO[bytes] | None = None
        try:
            make_folder(folder)
            path = os.path.join(folder, FILE_NAME)
            self._file = open(path, "wb", buffering=0, opener=private)  # noqa: SIM115
        except OSError:
            # A full disk or a folder that went away. The run itself will say so when it writes
            # the recording.
            self._file = None

    def write(self, data: bytes) -> None:
        """Takes what the program printed next."""
        self._last = (self._last + data[-MOST_BYTES:])[-MOST_BYTES - 1 :]
        head, rest = data[: self._head_left], data[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._append(head)
        if rest:
            self._head_left = 0
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._most_tail and len(self._tail) > 1:
                dropped = self._tail.popleft()
                self._tail_bytes -= len(dropped)
                self._left_out += len(dropped)

    def last_lines(self, root: str) -> list[str]:
        """See output_tail."""
        return last_lines(self._last, root)

    def close(self) -> None:
        """Writes the end of the output, after a line that says how much is missing before it."""
        tail = b"".join(self._tail)
        kept = tail[len(tail) - min(len(tail), self._most_tail) :]
        left_out = self._left_out + len(tail) - len(kept)
        if left_out:
            self._append(b"\n[... %d bytes left out ...]\n" % left_out)
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
