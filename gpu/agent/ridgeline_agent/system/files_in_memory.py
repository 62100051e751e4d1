"""Files that take memory and no disk: memfd_create's, and those in /dev/shm. What is written into
one without mapping it is in no process's resident size.

Files are told apart by device and inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_SHM = "/dev/shm"
_MEMFD = "/memfd:"
# A folder with more of them is somebody else's.
_MOST_FILES = 10_000
# stat(2) counts in these, whatever a file system's own blocks are.
_BLOCK_BYTES = 512

File = tuple[int, int]


def open_in(processes: list[int]) -> dict[File, int]:
    """Those that the processes have open, with their sizes in memory."""
    found: dict[File, int] = {}
    for process in processes:
        for path in descriptors(process):
            try:
                if os.readlink(path).startswith((_MEMFD, _SHM + "/")):
                    _add(found, os.stat(path))
            except OSError:
                continue  # It was closed.
    return found


def left_since(since: float) -> dict[File, int]:
    """Those in /dev/shm that this user has changed since then."""
    found: dict[File, int] = {}
    if not os.path.isdir(_SHM):
        return found
    user = os.getuid()
    for number, entry in enumerate(below(_SHM)):
        if number >= _MOST_FILES:
            break
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if status.st_uid == user and status.st_ctime >= since:
            _add(found, status)
    return found


def without_those_of_others(files: dict[File, int], processes: list[int]) -> dict[File, int]:
    """Leaves out what a process has open or mapped that is none of these: another program writes to
    /dev/shm at the same time.
    """
    if not files:
        return files
    ours = {*processes, os.getpid()}
    others = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    others = [process for process in others if process not in ours]
    theirs = set(open_in(others))
    for process in others:
        theirs.update(file for file, _ in _mapped(process, "maps"))
    own = open_in(processes)
    return {file: size for file, size in files.items() if file in own or file not in theirs}


def mapped_beside(files: dict[File, int], processes: list[int]) -> int:
    """The processes' shares of all mapped memory but that of these files."""
    total = 0
    for process in processes:
        total += sum(size for file, size in _mapped(process, "smaps") if file not in files)
    return total


def bytes_of(status: os.stat_result) -> int:
    """What a file takes, without its holes."""
    return status.st_blocks * _BLOCK_BYTES


def below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Files and folders below a folder, as far as they can be listed."""
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
    """The paths of what a process has open, in /proc."""
    folder = f"/proc/{process}/fd"
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def _mapped(process: int, name: str) -> Iterator[tuple[File, int]]:
    """Each mapping's file and, of smaps, the process's share of it."""
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
