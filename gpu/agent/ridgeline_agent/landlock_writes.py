"""Lets this process and its children write below some folders only, by Landlock (Linux 5.13): for
where nothing can be mounted, as in most containers. Reading is not restricted.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

# The same on every architecture.
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
# WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO,
# MAKE_BLOCK and MAKE_SYM of linux/landlock.h; REFER and TRUNCATE came later.
_WRITING = 1 << 1 | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = 1 << 1 | _TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _Rule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def restrict_writes(folders: Iterable[str]) -> None:
    """From now on only what is below these folders can be changed. Raises OSError where the kernel
    has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
        return result

    version = call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    handled = _WRITING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    ruleset = _Ruleset(handled)
    rules = call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(8), ctypes.c_uint32(0))
    try:
        for folder in folders:
            try:
                place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
                rule = _Rule(handled if is_folder else handled & _OF_FILES, place)
                call(_ADD_RULE, rules, ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
            finally:
                os.close(place)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        call(_RESTRICT, rules, ctypes.c_uint32(0))
    finally:
        os.close(rules)
