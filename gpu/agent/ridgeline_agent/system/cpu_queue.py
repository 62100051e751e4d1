"""How long a thread waits for the CPU while other threads use all of its cores."""

from __future__ import annotations

import os


class CpuQueue:
    """Reads how long the current thread has waited for the CPU since it started."""

    def __init__(self) -> None:
        self._file = -1
        try:
            # A file that stays open is read in a tenth of the time. It belongs to this thread.
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            return

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def waited_ns(self) -> int | None:
        """Returns nanoseconds, or None if the system does not report them."""
        # Windows has no `os.pread`.
        if self._file < 0:
            return None
        try:
            # Nanoseconds on a core, nanoseconds in its queue, and the number of time slices.
            return int(os.pread(self._file, 128, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return None
