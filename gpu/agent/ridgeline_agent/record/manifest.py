"""Writes the manifest, as the last file, so a folder without one is an unfinished run."""

from __future__ import annotations

import os
import platform
import re
import sys
from json import dumps
from typing import Any

from ..system.private_files import make_private, private

SCHEMA = 1
TRACE = "trace.json"
# Longer than every known Kineto header, and short enough to read at once.
_HEADER_BYTES = 1 << 16
# Facts about the machine rather than the run in a trace's header.
_MACHINE = re.compile(rb'("(?:host_name|hostname|username|user|trace_id)"\s*:\s*")([^"\\]*)(")')


def platform_name() -> str:
    """Returns the platform, such as `linux-x86_64`."""
    return f"{sys.platform}-{platform.machine().lower()}"


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Writes `manifest.json` atomically. A value that is not JSON becomes null, with a note."""
    others: set[str] = set()

    def null(value: object) -> None:
        others.add(type(value).__name__)

    # Not `json.dump`, which encodes piece by piece in Python and takes ten times as long.
    text = dumps(manifest, ensure_ascii=True, allow_nan=False, default=null)
    if others:
        names = ", ".join(sorted(others))
        manifest["notes"].append(
            f"an error within the profiler, not in your program: values of type {names} are missing"
        )
        text = dumps(manifest, ensure_ascii=True, allow_nan=False, default=null)
    path = os.path.join(folder, "manifest.json")
    with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
    os.replace(path + ".part", path)


def save_trace(results: Any, folder: str) -> None:
    """Saves Kineto's trace as `trace.json`, without facts about the machine.

    Kineto writes the given path into the trace, so the process changes to the folder and passes
    only a file name. The caller restores the working directory.
    """
    os.chdir(folder)
    results.save(TRACE)
    make_private(TRACE)
    # Kineto itself reports no errors.
    if not os.path.exists(TRACE):
        raise OSError("the profiler could not write its trace; is the disk full?")
    if os.path.getsize(TRACE) == 0:
        raise OSError("the profiler wrote an empty trace; is the disk full?")
    with open(TRACE, "r+b") as file:
        header = file.read(_HEADER_BYTES).split(b'"traceEvents"', 1)[0]
        # Overwritten in place with the same length, because a trace may have a gigabyte.
        blank = _MACHINE.sub(lambda at: at[1] + b"-" * len(at[2]) + at[3], header)
        if blank != header:
            file.seek(0)
            file.write(blank)
