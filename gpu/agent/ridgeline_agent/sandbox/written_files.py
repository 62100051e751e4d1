"""Counts what a sandboxed program has written. It may write only below its output folder, and only
a limited amount.
"""

from __future__ import annotations

import os

from ..system.files_in_memory import below, bytes_of, descriptors

# Much longer paths cannot be opened, so files below them would not be counted.
_MAX_PATH_LENGTH = 3000


def count(folder: str, processes: list[int], most: int) -> tuple[int, int]:
    """Returns the number of files and their total size in bytes. Stops at `most` files."""
    files = size = 0
    for entry in below(folder):
        if files >= most:
            break
        files += 1
        if len(entry.path) > _MAX_PATH_LENGTH:
            return most, size
        try:
            size += bytes_of(entry.stat(follow_symlinks=False))
        except OSError:
            continue
    for process in processes:
        for path in descriptors(process):
            try:
                status = os.stat(path)
                if status.st_nlink == 0:  # Deleted; its space is freed when it is closed.
                    size += bytes_of(status)
            except OSError:
                continue
    return files, size
