"""Gives up what root may do beyond others: an agent in a container mostly runs as root."""

from __future__ import annotations

import ctypes

from ..system import kernel_calls

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
# To open files of others. Landlock says which may be written.
_KEPT = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


def give_up() -> None:
    """From now on the calling thread, and what it starts, gains nothing by set-user-ID programs,
    and has no capability but those to open files. Raises OSError.
    """
    kernel_calls.gain_no_privileges()
    kept = _permitted() & _KEPT
    # Two halves, each with what is effective, permitted and inheritable.
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    kernel_calls.capset(_Header(_VERSION, 0), data)


def _permitted() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name == "CapPrm":
                return int(value, 16)
    return 0
