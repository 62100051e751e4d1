"""Low priority, for work that nobody waits for: it takes what others leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys

# `ioprio_set(2)`, which no library wraps, by machine.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_PROCESS = 1
_IDLE_CLASS = 3 << 13


def give_way() -> None:
    """This process, and what it starts from now on, gets processors and disks after all others.
    What a system has no means for is left alone.
    """
    if sys.platform == "win32":
        return
    # A process that is this nice already cannot become nicer.
    with contextlib.suppress(OSError):
        os.nice(19)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        number = _IOPRIO_SET.get(platform.machine())
        if number is not None:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE_CLASS)
