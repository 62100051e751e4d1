"""Writes the manifest, last of all, so that a folder without one is an unfinished run."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from typing import Any

from ..system.private_files import make_private, private

SCHEMA = 1
TRACE = "trace.json"
# Long enough for every header that Kineto has written, and short enough to read at once.
_HEADER_BYTES = 1 << 16
# What a trace's header says about the machine rather than about the run.
_MACHINE = re.compile(rb'("(?:host_name|hostname|username|user|trace_id)"\s*:\s*")([^"\\]*)(")')


def platform_name() -> str:
    """Such as `linux-x86_64`."""
    return f"{sys.platform}-{platform.machine().lower()}"


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Writes `manifest.json` so that it is there whole or not at all."""
    path = os.path.join(folder, "manifest.json")
    with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
        # Not `json.dump`, which encodes piece by piece in Python and takes ten times as long.
        file.write(json.dumps(manifest, ensure_ascii=True, allow_nan=False))
        file.flush()
    os.replace(path + ".part", path)


def save_trace(results: Any, folder: str) -> None:
    """Saves Kineto's trace as `trace.json`, without what it says about the machine.

    Kineto writes the path that it was given into the trace, so it is given a bare name and the
    process moves into the folder; the program that it belonged to runs no further.
    """
    os.chdir(folder)
    results.save(TRACE)
    make_private(TRACE)
    # Kineto reports no error of its own.
    if not os.path.exists(TRACE):
        raise OSError("the profiler could not write its trace; is the disk full?")
    if os.path.getsize(TRACE) == 0:
        raise OSError("the profiler wrote an empty trace; is the disk full?")
    with open(TRACE, "r+b") as file:
        header = file.read(_HEADER_BYTES).split(b'"traceEvents"', 1)[0]
        # Overwritten in place and at the same length, because a trace may be a gigabyte.
        blank = _MACHINE.sub(lambda at: at[1] + b"-" * len(at[2]) + at[3], header)
        if blank != header:
            file.seek(0)
            file.write(blank)
