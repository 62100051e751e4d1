"""Linux system calls that Python has no function for."""

from __future__ import annotations

import ctypes
import os
import platform

# System call numbers. Those from 424 on are the same on all architectures.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CAPSET = {"x86_64": 126, "aarch64": 91}

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_SET_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS


def machine() -> str:
    """Returns this process's architecture, or "" if its system call numbers are not listed here. A
    32-bit Python on a 64-bit kernel uses other numbers.
    """
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return name if name in _SECCOMP and ctypes.sizeof(ctypes.c_void_p) == 8 else ""


def landlock_create_ruleset(attributes: ctypes.Structure | None, flags: int) -> int:
    """Returns a file descriptor, or with flags the ABI version. Raises OSError."""
    size = 0 if attributes is None else ctypes.sizeof(attributes)
    pointer = None if attributes is None else ctypes.byref(attributes)
    return _call(_LANDLOCK_CREATE_RULESET, pointer, ctypes.c_size_t(size), ctypes.c_uint32(flags))


def landlock_add_rule(ruleset: int, kind: int, attributes: ctypes.Structure) -> None:
    """Raises OSError."""
    pointer = ctypes.byref(attributes)
    _call(
        _LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(kind), pointer, ctypes.c_uint32(0)
    )


def landlock_restrict_self(ruleset: int) -> None:
    """Raises OSError."""
    _call(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))


def seccomp(operation: int, flags: int, arguments: object) -> None:
    """Raises OSError."""
    number = _SECCOMP[machine()]
    _call(number, ctypes.c_uint(operation), ctypes.c_uint(flags), arguments)


def capset(header: ctypes.Structure, data: object) -> None:
    """Raises OSError."""
    _call(_CAPSET[machine()], ctypes.byref(header), data)


def prctl(option: int, *arguments: int) -> None:
    """Raises OSError."""
    words = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    ctypes.set_errno(0)
    if _LIBC.prctl(ctypes.c_int(option), *words) < 0:
        raise _error()


def set_no_new_privileges() -> None:
    """Prevents the calling thread and its children from gaining privileges through set-user-ID
    programs. Raises OSError.
    """
    prctl(_SET_NO_NEW_PRIVILEGES, 1)


def _call(number: int, *arguments: object) -> int:
    ctypes.set_errno(0)
    result: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _error()
    return result


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
