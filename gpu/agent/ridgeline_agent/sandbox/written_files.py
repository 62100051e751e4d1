"""What a confined program has written: it may write below its output folder only, and not without
end.
"""

from __future__ import annotations

import os

from ..system.files_in_memory import below, bytes_of, descriptors

# A path that is much longer cannot be opened, and what is there would not be counted.
_LONGEST_PATH = 3000


def count(folder: str, processes: list[int], most: int) -> tuple[int, int]:
    """How many files there are, and their bytes. Counts to `most` files."""
    files = size = 0
    for entry in below(folder):
        if files >= most:
            break
        files += 1
        if len(entry.path) > _LONGEST_PATH:
            return most, size
        try:
            size += bytes_of(entry.stat(follow_symlinks=False))
        except OSError:
            continue
    for process in processes:
        for path in descriptors(process):
            try:
                status = os.stat(path)
                if status.st_nlink == 0:  # Removed, and gone only when it is closed.
                    size += bytes_of(status)
            except OSError:
                continue
    return files, size
