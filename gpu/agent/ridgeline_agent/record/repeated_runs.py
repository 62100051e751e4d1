"""Merges several runs of a program with few iterations: some runs time its iterations, the last one
profiles them, and its recording has all times.

Each run is a separate process, so an iteration is the same as in the program itself, including
one-time costs.
"""

from __future__ import annotations

import os
from json import loads
from typing import Any

from ..protocol import rank_states
from ..protocol.spec import RunSpec

_MANIFEST = "manifest.json"
_MAX_BYTES = 64 * 2**20


def add_earlier(manifest: dict[str, Any], spec: RunSpec) -> None:
    """Adds the times of the earlier runs before those of this one.

    Raises OSError or ValueError if one of them cannot be read.
    """
    earlier = [_read(folder, spec.rank) for folder in spec.earlier]
    if not earlier:
        return
    runs = [*earlier, manifest]
    iterations = manifest["iterations"]
    iterations["runs"] = len(runs)
    for key in [key for key in iterations if key.startswith("timed_")]:
        values = [run["iterations"].get(key) for run in runs]
        iterations[key] = _concatenated(values)
    joules = [run["iterations"].get("joules") for run in runs]
    known = [one for one in joules if isinstance(one, (int, float))]
    iterations["joules"] = sum(known) / len(known) if known else None
    _add_loaders(runs)
    # Without duplicates, for example about what was compiled during the timing.
    manifest["notes"] = list(dict.fromkeys(note for run in runs for note in run.get("notes") or ()))


def _read(folder: str, rank: int | None) -> dict[str, Any]:
    path = os.path.join(rank_states.rank_folder(folder, rank or 0), _MANIFEST)
    with open(path, encoding="utf-8") as file:
        read: Any = loads(file.read(_MAX_BYTES))
    if not isinstance(read, dict) or not isinstance(read.get("iterations"), dict):
        raise ValueError(f"{_MANIFEST} of an earlier run is invalid")
    return read


def _concatenated(values: list[Any]) -> Any:
    """Concatenates lists, also within objects. If one run lacks a phase, it is left out for all:
    lists of different lengths would not match.
    """
    present = [value for value in values if value]
    if all(isinstance(value, list) for value in present):
        return [item for value in present for item in value]
    if all(isinstance(value, dict) for value in present):
        keys = [key for key in present[0] if all(key in value for value in present)]
        return {key: _concatenated([value[key] for value in present]) for key in keys}
    return values[-1]


def _add_loaders(runs: list[dict[str, Any]]) -> None:
    """Merges the wait for batches. The runs are of the same program, so their loaders match."""
    own = runs[-1].get("loaders") or []
    for index, loader in enumerate(own):
        same = [run["loaders"][index] for run in runs if len(run.get("loaders") or ()) > index]
        loader["fetch_ns"] = _concatenated([one.get("fetch_ns") for one in same])
        loader["fetch_cpu_ns"] = sum(one.get("fetch_cpu_ns") or 0 for one in same)
