"""Drops root's privileges. In a container, an agent usually runs as root."""

from __future__ import annotations

import ctypes

from ..system import kernel_calls

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
# For opening files of other users. Landlock controls which may be written.
_KEPT = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


def give_up() -> None:
    """Prevents the calling thread and its children from gaining privileges through set-user-ID
    programs, and drops all capabilities except those for opening files. Raises OSError.
    """
    kernel_calls.set_no_new_privileges()
    kept = _permitted() & _KEPT
    # Two halves, each with the effective, permitted and inheritable set.
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    kernel_calls.capset(_Header(_VERSION, 0), data)


def _permitted() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name == "CapPrm":
                return int(value, 16)
    return 0
