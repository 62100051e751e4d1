"""The transport between the agent's processes and the server: JSON lines over a file descriptor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from json import dumps, loads
from typing import Any, Protocol

# Longer lines are not requests. The limit protects the memory from a faulty peer.
MAX_LINE_BYTES = 16 * 2**20
_CHUNK = 65536
# Programs that close "all" descriptors often stop at a small number, and programs that open files
# get small numbers.
_MIN_DESCRIPTOR = 100


class Events(Protocol):
    """Receives the events of a run."""

    def send(self, event: dict[str, Any]) -> None:
        """Takes an event. Raises OSError if the receiver is gone."""


class Sender:
    """Writes events. Nothing is buffered, so an `os._exit` right after loses nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(descriptor)

    @property
    def descriptor(self) -> int:
        """The file descriptor that it writes to."""
        return self._descriptor

    def send(self, event: dict[str, Any]) -> None:
        """Writes an event. Raises OSError if the pipe is closed, or has become another file."""
        if _identity(self._descriptor) != self._identity:
            # The user's program closed it and opened another file with the same number.
            raise BrokenPipeError("the protocol's file descriptor was closed")
        write_all(self._descriptor, dumps(event).encode("ascii") + b"\n")


def read_objects(descriptor: int) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects until the end of the file. Other lines are skipped."""
    rest = b""
    skipping = False
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:
            return
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if skipping or len(line) > MAX_LINE_BYTES:
                skipping = False
                continue
            if (value := _parse(line)) is not None:
                yield value
        if len(rest) > MAX_LINE_BYTES:
            rest, skipping = b"", True


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all data, even to a pipe that was set to non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            os.set_blocking(descriptor, True)


def take_descriptor(descriptor: int) -> int:
    """Duplicates it to a high number that child programs do not inherit."""
    if sys.platform != "win32":
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _MIN_DESCRIPTOR)
    return os.dup(descriptor)


def take_standard_streams() -> tuple[int, int]:
    """Takes 0 and 1 for the protocol, and replaces them with an empty input and stderr."""
    requests, events = take_descriptor(0), take_descriptor(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, events


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = loads(line)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
    return value if isinstance(value, dict) else None


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
