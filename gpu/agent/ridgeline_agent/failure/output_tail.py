"""The last lines of a program's output, for a user who wants to know why it ended."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator

from .exception import shorten, without_absolute_paths, without_escapes

MAX_LINES = 60
MAX_BYTES = 2**16
_MAX_LINE_CHARS = 300
# torchrun prefixes each line with the rank, and a prompt leaves its line open.
_TRACEBACK = re.compile(r"^(\[\w+\]: ?)?(.*?)(?:Original )?Traceback \(most recent call last\):$")
_WARNING = re.compile(r":\d+: \w*Warning: ")
# Messages of the profiler, which may follow a progress bar on its line.
_OF_PROFILER = re.compile(
    r"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.cpp:\d+\].*"
    r"|\[W\d{4} [\d:.]+ CPUAllocator\.cpp:\d+\].*"
)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Box characters that rich and typer draw around messages.
_BOX_CHARACTERS = "─━│┃╭╮╰╯┌┐└┘═║╔╗╚╝"


def last_lines(printed: bytes, root: str) -> list[str]:
    """Returns at most 60 lines, without empty ones, rules (`=====`), messages of the profiler and
    the source lines of warnings. Of tracebacks only the exceptions are kept, because their frames
    are shown elsewhere.
    """
    text = without_escapes(printed[-MAX_BYTES:].decode("utf-8", "replace"))
    # The supervisor may cut within a line.
    lines = text.split("\n")[1 if len(printed) > MAX_BYTES else 0 :]
    lines = list(_without_warned_source(_without_frames(lines)))
    lines_to_show = [line for line in map(_shown, lines) if _says_something(line)]
    return [
        shorten(without_absolute_paths(line, root), _MAX_LINE_CHARS)
        for line in lines_to_show[-MAX_LINES:]
    ]


def _without_warned_source(lines: Iterable[str]) -> Iterator[str]:
    """Drops the source line that Python prints below a warning."""
    is_warning = False
    for line in lines:
        if not (is_warning and line.startswith("  ")):
            yield line
        is_warning = _WARNING.search(line) is not None


def _says_something(line: str) -> bool:
    return any(one not in string.punctuation and not one.isspace() for one in line)


def _shown(line: str) -> str:
    # A progress bar overwrites its line, so only the last part is visible.
    line = _OF_PROFILER.sub("", line)
    parts = [part for part in line.split("\r") if part.strip()]
    line = parts[-1] if parts else ""
    line = "".join(one if one.isprintable() else " " for one in line)
    return line.strip(_BOX_CHARACTERS + " ") if line[:1] in _BOX_CHARACTERS else line.rstrip()


def _without_frames(lines: list[str]) -> Iterator[str]:
    prefix: str | None = None
    for line in lines:
        line = line.rstrip("\n")
        if (begins := _TRACEBACK.match(line)) is not None:
            prefix = begins.group(1) or ""
            yield begins.group(2)
            continue
        if prefix is not None:
            own = line[len(prefix) :] if line.startswith(prefix) else line
            if not own.strip() or own[0].isspace():
                continue
            prefix = None
        if line.strip() not in _CHAINED:
            yield line
