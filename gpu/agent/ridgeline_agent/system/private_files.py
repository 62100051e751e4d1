"""Files of ours that only this user may read, whatever umask the program has: they hold its text
and what it printed. The umask itself is the program's, and is never changed.
"""

from __future__ import annotations

import contextlib
import os
import stat


def private(path: str, flags: int) -> int:
    """An `opener` of `open`."""
    return os.open(path, flags, 0o600)


def make_folder(path: str) -> None:
    """Makes a folder, and those above it, where they are not there."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.makedirs(path, mode=0o700, exist_ok=True)


def make_private(path: str) -> None:
    """Of a file that a library wrote; what a link leads to is none of ours."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.chmod(path, 0o600)
