"""How long a thread waits for a processor while other threads use all of them."""

from __future__ import annotations


def waited_ns() -> int | None:
    """The nanoseconds for which this thread was ready to run and did not, since it started, or
    None if the system does not report them.
    """
    try:
        # Nanoseconds on a processor, nanoseconds in its queue, and the number of time slices.
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
