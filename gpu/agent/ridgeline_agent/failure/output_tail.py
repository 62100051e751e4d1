"""The last lines of what a program printed, as they are shown to a person who asks why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .exception import shorten, without_absolute_paths, without_escapes

MOST_LINES = 60
MOST_BYTES = 2**16
_LONGEST_LINE = 300
# torchrun writes the rank before each line, and a prompt leaves its line open.
_TRACEBACK = re.compile(r"^(\[\w+\]: ?)?(.*?)(?:Original )?Traceback \(most recent call last\):$")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# What rich and typer draw around their messages.
_FRAMES_OF_BOXES = "─━│┃╭╮╰╯┌┐└┘═║╔╗╚╝"


def last_lines(printed: bytes, root: str) -> list[str]:
    """At most 60 lines, none of them empty. Of tracebacks only the exceptions are left, because
    their frames are shown otherwise.
    """
    text = without_escapes(printed[-MOST_BYTES:].decode("utf-8", "replace"))
    # The supervisor cuts within a line.
    lines = text.split("\n")[1 if len(printed) > MOST_BYTES else 0 :]
    kept = [line for line in map(_shown, _without_frames(lines)) if line]
    return [
        shorten(without_absolute_paths(line, root), _LONGEST_LINE) for line in kept[-MOST_LINES:]
    ]


def _shown(line: str) -> str:
    # A progress bar writes over its own line: the last of it is what a person sees.
    parts = [part for part in line.split("\r") if part.strip()]
    line = parts[-1] if parts else ""
    line = "".join(one if one.isprintable() else " " for one in line)
    return line.strip(_FRAMES_OF_BOXES + " ") if line[:1] in _FRAMES_OF_BOXES else line.rstrip()


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
