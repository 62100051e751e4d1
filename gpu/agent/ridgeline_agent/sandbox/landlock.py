"""Landlock (Linux 5.13): the kernel restricts which files a process may change (landlock(7)).

Everything that no rule allows is denied, for this process and its children, permanently.
Descriptors that are already open are not affected.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from ..system import kernel_calls

_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

# A kernel with this ABI knows the rights below this bit.
_FIRST_UNKNOWN_RIGHT = {1: REFER, 2: TRUNCATE, 3: IOCTL_DEV, 4: IOCTL_DEV}
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_NET_BIND_TCP_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL = 3

# From these ABI versions on, Landlock enforces what otherwise needs a seccomp filter.
HOLDS_TRUNCATE = 3
HOLDS_TCP = 4
HOLDS_SIGNALS = 6

READ = READ_FILE | READ_DIR | EXECUTE
# No links, pipes, sockets or devices: unsandboxed processes read the folder afterwards, and would
# follow links and block on pipes.
WRITE_BELOW = (
    READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR
    | REFER
)  # fmt: skip
USE_DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
# All rights that change a file or a folder.
_CHANGE = (
    WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO
    | MAKE_BLOCK | MAKE_SYM | REFER | TRUNCATE
)  # fmt: skip


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # Implied by `_pack_`, but Python 3.14 requires it.
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """Returns the kernel's ABI version. Raises OSError if Landlock is not supported."""
    return kernel_calls.landlock_create_ruleset(None, _VERSION)


def restrict(rules: Iterable[tuple[str, int]], level: int) -> None:
    """Restricts file access of the calling thread to the rules: paths, and the rights on them and
    below. Paths that do not exist are skipped. Raises OSError.

    `level` is the kernel's ABI or lower. As far as that ABI supports it, TCP connections and
    signals to outside processes are denied too.
    """
    attributes = _RulesetAttributes(_known(level), 0, 0)
    if level >= HOLDS_TCP:
        attributes.handled_access_net = _NET_BIND_TCP_AND_CONNECT_TCP
    if level >= HOLDS_SIGNALS:
        attributes.scoped = _SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL
    _restrict(attributes, rules)


def restrict_writes(folders: Iterable[str]) -> None:
    """Restricts the calling thread's writes to some folders. Reading is not restricted. Raises
    OSError.
    """
    attributes = _RulesetAttributes(_CHANGE & _known(abi()), 0, 0)
    kernel_calls.set_no_new_privileges()
    _restrict(attributes, ((folder, _CHANGE) for folder in folders))


def _known(level: int) -> int:
    """Returns the rights that a kernel with this ABI knows."""
    return _FIRST_UNKNOWN_RIGHT.get(level, IOCTL_DEV << 1) - 1


def _restrict(attributes: _RulesetAttributes, rules: Iterable[tuple[str, int]]) -> None:
    ruleset = kernel_calls.landlock_create_ruleset(attributes, 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & attributes.handled_access_fs)
        kernel_calls.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # A folder takes every right, a file only file rights.
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        beneath = _PathBeneath(rights if is_folder else rights & _FILE_RIGHTS, place)
        kernel_calls.landlock_add_rule(ruleset, _PATH_BENEATH, beneath)
    finally:
        os.close(place)
