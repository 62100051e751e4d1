"""Creates files that only this user can read, regardless of the program's umask, because they
contain its source text and output. The umask belongs to the program and is never changed.
"""

from __future__ import annotations

import contextlib
import os
import stat


def private(path: str, flags: int) -> int:
    """An `opener` for `open` that creates files with mode 0600."""
    return os.open(path, flags, 0o600)


def make_folder(path: str) -> None:
    """Creates a private folder, and its parent, if they do not exist."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.makedirs(path, mode=0o700, exist_ok=True)


def make_private(path: str) -> None:
    """Restricts a file that a library wrote. Does not follow links."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.chmod(path, 0o600)
