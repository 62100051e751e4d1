"""Low priority, for work that nobody is waiting for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys

# `ioprio_set(2)` has no library wrapper. Its number by machine.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_PROCESS = 1
_IDLE_CLASS = 3 << 13


def set_low_priority() -> None:
    """Gives this process and its future children the lowest CPU and I/O priority. Skips what the
    system does not support.
    """
    if sys.platform == "win32":
        return
    # A process that already has this niceness cannot become nicer.
    with contextlib.suppress(OSError):
        os.nice(19)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        number = _IOPRIO_SET.get(platform.machine())
        if number is not None:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE_CLASS)
