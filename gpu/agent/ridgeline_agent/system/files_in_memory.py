"""Files that take memory instead of disk space: those of memfd_create and in /dev/shm. Unless they
are mapped, their contents do not count in any process's resident size.

Files are identified by device and inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_SHM = "/dev/shm"
_MEMFD = "/memfd:"
# A folder with more files is not ours.
_MAX_FILES = 10_000
# Unit of st_blocks in stat(2), independent of the file system's block size.
_BLOCK_BYTES = 512

File = tuple[int, int]


def open_files(processes: list[int]) -> dict[File, int]:
    """Returns the in-memory files that the processes have open, with their sizes in bytes."""
    found: dict[File, int] = {}
    for process in processes:
        for path in descriptors(process):
            try:
                if os.readlink(path).startswith((_MEMFD, _SHM + "/")):
                    _add(found, os.stat(path))
            except OSError:
                continue  # It was closed.
    return found


def shm_files_since(since: float) -> dict[File, int]:
    """Returns the files in /dev/shm that this user has changed since `since`."""
    found: dict[File, int] = {}
    if not os.path.isdir(_SHM):
        return found
    user = os.getuid()
    for number, entry in enumerate(below(_SHM)):
        if number >= _MAX_FILES:
            break
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if status.st_uid == user and status.st_ctime >= since:
            _add(found, status)
    return found


def exclude_foreign(files: dict[File, int], processes: list[int]) -> dict[File, int]:
    """Excludes files that other processes have open or mapped, because another program may write to
    /dev/shm at the same time.
    """
    if not files:
        return files
    ours = {*processes, os.getpid()}
    others = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    others = [process for process in others if process not in ours]
    theirs = set(open_files(others))
    for process in others:
        theirs.update(file for file, _ in _mapped(process, "maps"))
    own = open_files(processes)
    return {file: size for file, size in files.items() if file in own or file not in theirs}


def mapped_bytes_except(files: dict[File, int], processes: list[int]) -> int:
    """Returns the processes' shares of all mapped memory, except of these files, in bytes."""
    total = 0
    for process in processes:
        total += sum(size for file, size in _mapped(process, "smaps") if file not in files)
    return total


def bytes_of(status: os.stat_result) -> int:
    """Returns the disk usage of a file, without its holes."""
    return status.st_blocks * _BLOCK_BYTES


def below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields the files and folders below a folder, skipping what cannot be listed."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    yield entry
        except OSError:
            continue


def _add(found: dict[File, int], status: os.stat_result) -> None:
    found[(status.st_dev, status.st_ino)] = bytes_of(status)


def descriptors(process: int) -> list[str]:
    """Returns the paths in /proc of a process's open files."""
    folder = f"/proc/{process}/fd"
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def _mapped(process: int, name: str) -> Iterator[tuple[File, int]]:
    """Yields each mapping's file and, for smaps, the process's proportional share in bytes."""
    try:
        with open(f"/proc/{process}/{name}", encoding="utf-8", errors="replace") as file:
            mapped = (0, 0)
            for line in file:
                words = line.split(maxsplit=5)
                if len(words) >= 5 and "-" in words[0]:
                    major, _, minor = words[3].partition(":")
                    mapped = (os.makedev(int(major, 16), int(minor, 16)), int(words[4]))
                    if name == "maps" and mapped[1]:
                        yield mapped, 0
                elif words[0] == "Pss:":
                    yield mapped, int(words[1]) * 1024
    except (OSError, ValueError):
        return
