"""Lists the redirected writes of a run (redirect.py) at its end, then removes them.

The process that watches the run does this, because it outlives the run in any case. The program
could write to the run's folder, so everything that is read there is validated: only folders that
match those of redirect.py are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol.spec import RunSpec
from .patches.rewritten_paths import REMOVED
from .persistent_folders import is_within, kept_folders
from .redirect import FOLDER_PREFIX, LOCK, RECORD_PREFIX, temporary_bases

# Limits for programs that write very many files: changes shown, entries scanned, seconds.
_MAX_CHANGES = 500
_MAX_ENTRIES = 20_000
_MAX_SCAN_SECONDS = 3.0
_MAX_RECORD_BYTES = 4 * 2**20
# Larger files with a different modification time count as changed.
_MAX_COMPARED_BYTES = 16 * 2**20
# A cache on another disk than the temporary folder must be copied.
_MAX_COPIED_BYTES = 4 * 2**30
_MAX_RECORDS = 1000
# A folder that was just created may not be locked yet.
_MIN_SWEPT_AGE_SECONDS = 60.0


@dataclass(frozen=True)
class Change:
    """A changed file in the discarded overlay."""

    path: str
    # "created", "changed" or "removed".
    what: str
    bytes: int


def take(spec: RunSpec) -> dict[str, Any] | None:
    """Returns `side_effects` for the event that ends the run, or None if nothing was redirected.
    Also removes the run's temporary folders.
    """
    outs = [spec.out, *(version.out for version in spec.versions)]
    records = [record for out in outs for record in _records_in(out)]
    if not records:
        return None
    variables = {**os.environ, **spec.env}
    bases = {os.path.realpath(base) for base in temporary_bases(variables)}
    changes: dict[str, Change] = {}
    is_whole = True
    for record in records:
        folders = [one for one in _texts(record.get("folders")) if _is_temporary_folder(one, bases)]
        layers = [
            (path, upper)
            for path, upper in _pairs(record.get("layers"))
            if any(is_within(upper, folder) and upper != folder for folder in folders)
        ]
        caches = kept_folders(spec.keep_writes, spec.root, variables)
        _restore_caches(caches, layers)
        if record.get("mode") == "redirect":
            walk = _LayerWalk(spec.root)
            removed = {path: one for folder in folders for path, one in _removed_in(folder)}
            changes.update(removed)
            for path, upper in layers:
                changes.update((change.path, change) for change in walk.changes(path, upper))
            is_whole = is_whole and not walk.is_over
        for folder in folders:
            _remove(folder)
        for made in _texts(record.get("made")):
            if made in caches:
                with contextlib.suppress(OSError):
                    os.rmdir(made)
    sorted_changes = sorted(changes.values(), key=lambda one: (one.what != "removed", one.path))
    return {
        "mode": records[0].get("mode"),
        "held_by": _weakest_mechanism(record.get("held_by") for record in records),
        "open": sorted({path for record in records for path in _texts(record.get("open"))})[:20],
        "changes": [_as_json(change, spec.root) for change in sorted_changes[:_MAX_CHANGES]],
        "count": len(sorted_changes),
        "bytes": sum(change.bytes for change in sorted_changes if change.what != "removed"),
        "is_whole": is_whole,
    }


def summary(side_effects: Mapping[str, Any]) -> str:
    """Returns a line for the log, for callers that do not show the list."""
    changes = side_effects.get("changes") or []
    if not changes:
        return ""
    names = ", ".join(f"{one['path']} ({one['change']})" for one in changes[:20])
    more = side_effects["count"] - min(len(changes), 20)
    return f"Not written to disk: {names}" + (f", and {more} more" if more > 0 else "") + "\n"


def sweep(variables: Mapping[str, str]) -> None:
    """Removes temporary folders of runs that have no live process."""
    for base in temporary_bases(variables):
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(FOLDER_PREFIX)]
            for folder in found:
                if _is_temporary_folder(folder, {os.path.realpath(base)}) and _is_left_behind(
                    folder
                ):
                    _remove(folder)


class DiskWatch:
    """Checks that redirected writes do not fill the disk. If a program opens a huge file for
    writing, the kernel copies it first.
    """

    def __init__(self, out: str) -> None:
        self._out = out
        self._folders: list[str] = []
        self._free_at_first: dict[str, int] = {}

    def is_too_much(self) -> bool:
        """Whether half of the disk space that was free when the run began is used up."""
        if not self._folders:
            records = _read_records(self._out)
            self._folders = [one for record in records for one in _texts(record.get("folders"))]
        for folder in self._folders:
            with contextlib.suppress(OSError):
                status = os.statvfs(folder)
                free = status.f_bavail * status.f_frsize
                if 2 * free < self._free_at_first.setdefault(folder, free):
                    return True
        return False


class _LayerWalk:
    """Walks the overlay layers, within limits."""

    def __init__(self, root: str) -> None:
        self._own = [os.path.realpath(path) for path in (root, os.path.expanduser("~"))]
        self._temporary = {
            os.path.realpath(path) for path in ("/tmp", "/var/tmp", tempfile.gettempdir())
        }
        self._ends = time.monotonic() + _MAX_SCAN_SECONDS
        self._seen = 0
        self.is_over = False

    def changes(self, lower: str, upper: str) -> Iterator[Change]:
        """Yields the changes in an upper layer compared to the folder below it."""
        is_temporary = lower in self._temporary
        for path, entry in self._entries(lower, upper):
            if entry.name == "__pycache__" or entry.name.endswith(".pyc"):
                continue
            # Left behind by a killed run, and removed by a rank's agent.
            if entry.name.startswith(FOLDER_PREFIX):
                continue
            change = _change(path, entry)
            if change is None:
                continue
            # Ignore files that a program creates in temporary folders.
            is_own = any(is_within(path, own) for own in self._own)
            if is_own or not (is_temporary and change.what == "created"):
                yield change

    def _entries(self, lower: str, upper: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        pending = [(lower, upper)]
        while pending and not self.is_over:
            path, folder = pending.pop()
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in found:
                self._seen += 1
                if self._seen > _MAX_ENTRIES or time.monotonic() > self._ends:
                    self.is_over = True
                    return
                below = os.path.join(path, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and entry.name != "__pycache__":
                    pending.append((below, entry.path))
                yield below, entry


def _change(path: str, entry: os.DirEntry[str]) -> Change | None:
    try:
        after = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    try:
        before = os.lstat(path)
    except OSError:
        before = None
    if stat.S_ISCHR(after.st_mode) and after.st_rdev == 0:
        # Overlays mark a deleted file with such a device.
        return None if before is None else Change(path, "removed", before.st_size)
    if stat.S_ISDIR(after.st_mode):
        # Its files are listed.
        return None
    if before is None:
        return Change(path, "created", after.st_size)
    return (
        None
        if _is_same(path, before, entry.path, after)
        else Change(path, "changed", after.st_size)
    )


def _removed_in(folder: str) -> Iterator[tuple[str, Change]]:
    """Yields deleted files if there is no overlay to mark them
    (side_effects/patches/rewritten_paths.py).
    """
    with contextlib.suppress(OSError), open(os.path.join(folder, REMOVED), "rb") as file:
        for name in file.read(_MAX_RECORD_BYTES).split(b"\0"):
            path = os.fsdecode(name)
            with contextlib.suppress(OSError):
                if path and not os.path.lexists(os.path.join(folder, "0-upper") + path):
                    yield path, Change(path, "removed", os.lstat(path).st_size)


def _is_same(path: str, before: os.stat_result, copy: str, after: os.stat_result) -> bool:
    """Whether a copy is unchanged. A file that was opened for writing is copied even if nothing is
    written.
    """
    if not (stat.S_ISREG(before.st_mode) and stat.S_ISREG(after.st_mode)):
        return False
    if before.st_size != after.st_size:
        return False
    if before.st_mtime_ns == after.st_mtime_ns:
        return True
    with contextlib.suppress(OSError):
        return before.st_size <= _MAX_COMPARED_BYTES and filecmp.cmp(path, copy, shallow=False)
    return False


def _as_json(change: Change, root: str) -> dict[str, Any]:
    inside = os.path.realpath(root)
    home = os.path.expanduser("~")
    path, is_outside = change.path, not is_within(change.path, inside)
    if not is_outside:
        path = os.path.relpath(path, inside)
    elif os.path.isabs(home) and is_within(path, home):
        path = os.path.join("~", os.path.relpath(path, home))
    path = path.encode("utf-8", "replace").decode()
    return {"path": path, "change": change.what, "bytes": change.bytes, "outside": is_outside}


def _restore_caches(caches: Iterable[str], layers: list[tuple[str, str]]) -> None:
    """Moves caches that did not exist when the run began to their final place, because they could
    not be written through.
    """
    for cache in caches:
        if os.path.lexists(cache):
            continue
        over = [(path, upper) for path, upper in layers if is_within(cache, path)]
        if not over:
            continue
        path, upper = max(over, key=lambda one: len(one[0]))
        written = os.path.join(upper, os.path.relpath(cache, path))
        if not os.path.isdir(written) or os.path.islink(written):
            continue
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(cache), exist_ok=True)
            try:
                os.rename(written, cache)
            except OSError:
                if _size(written) <= _MAX_COPIED_BYTES:
                    shutil.copytree(written, cache, symlinks=True)


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _is_temporary_folder(folder: str, bases: set[str]) -> bool:
    base, name = os.path.split(folder)
    if base not in bases or not name.startswith(FOLDER_PREFIX):
        return False
    with contextlib.suppress(OSError):
        status = os.lstat(folder)
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return False


def _is_left_behind(folder: str) -> bool:
    with contextlib.suppress(OSError):
        if time.time() - os.lstat(folder).st_mtime < _MIN_SWEPT_AGE_SECONDS:
            return False
        lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(lock)
    # Its process ended between creating the folder and locking it.
    return not os.path.exists(os.path.join(folder, LOCK))


def _remove(folder: str) -> None:
    # The program may have made a folder read-only, and the kernel's work folder has no permissions.
    for path, folders, _ in os.walk(folder):
        for name in folders:
            below = os.path.join(path, name)
            if not os.path.islink(below):
                with contextlib.suppress(OSError):
                    os.chmod(below, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _records_in(out: str) -> list[dict[str, Any]]:
    """Returns the records of the run's processes, and removes the files."""
    records = _read_records(out)
    for path in _record_files(out):
        with contextlib.suppress(OSError):
            os.unlink(path)
    return records


def _read_records(out: str) -> list[dict[str, Any]]:
    records = []
    for path in _record_files(out):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                value = json.loads(file.read(_MAX_RECORD_BYTES))
            if isinstance(value, dict):
                records.append(value)
    return records


def _record_files(out: str) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in sorted(os.listdir(out)) if name.startswith(RECORD_PREFIX)]
    return [os.path.join(out, name) for name in names[:_MAX_RECORDS]]


def _weakest_mechanism(held_by: Iterable[object]) -> str:
    found = set(held_by)
    return next((one for one in ("nothing", "python", "landlock") if one in found), "kernel")


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _pairs(value: object) -> list[tuple[str, str]]:
    pairs = value if isinstance(value, list) else []
    return [
        (one[0], one[1])
        for one in pairs
        if isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)
    ]
