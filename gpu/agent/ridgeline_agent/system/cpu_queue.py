"""How long a thread waits for the CPU while other threads use all of its cores."""

from __future__ import annotations


def waited_ns() -> int | None:
    """The nanoseconds for which this thread was ready to run and did not, since it started, or
    None if the system does not report them.
    """
    try:
        # Nanoseconds on a core, nanoseconds in its queue, and the number of time slices.
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
