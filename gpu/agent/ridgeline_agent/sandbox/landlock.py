"""Landlock (Linux 5.13): which files a process may change, held by the kernel (landlock(7)).

What is not allowed by a rule is refused, to this process and to everything that it starts, for
ever. Descriptors that are open already are not affected.
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

# The rights that a kernel with this ABI knows are those below this bit.
_FIRST_UNKNOWN = {1: REFER, 2: TRUNCATE, 3: IOCTL_DEV, 4: IOCTL_DEV}
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_NET_BIND_TCP_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL = 3

# Since these ABIs the kernel itself holds what a seccomp filter has to hold before.
HOLDS_TRUNCATE = 3
HOLDS_TCP = 4
HOLDS_SIGNALS = 6

READ = READ_FILE | READ_DIR | EXECUTE
# Without links to elsewhere, pipes, sockets and devices: those who read the folder afterwards are
# not confined, and would follow the one and wait for the other.
WRITE_BELOW = (
    READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR
    | REFER
)  # fmt: skip
USE_DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
# Everything that changes a file or a folder.
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
    _layout_ = "ms"  # What `_pack_` implies; Python 3.14 wants it said.
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """What this kernel offers. Raises OSError where that is nothing."""
    return kernel_calls.landlock_create_ruleset(None, _VERSION)


def restrict(rules: Iterable[tuple[str, int]], level: int) -> None:
    """From now on the calling thread may do what the rules say, each a path and rights on it and
    below it, and nothing else to files. Paths that are not there are left out. Raises OSError.

    At `level`, which is the kernel's ABI or below, it opens no TCP connection and reaches no
    process outside by signals, as far as that ABI knows them.
    """
    attributes = _RulesetAttributes(_known(level), 0, 0)
    if level >= HOLDS_TCP:
        attributes.handled_access_net = _NET_BIND_TCP_AND_CONNECT_TCP
    if level >= HOLDS_SIGNALS:
        attributes.scoped = _SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL
    _restrict(attributes, rules)


def restrict_writes(folders: Iterable[str]) -> None:
    """From now on the calling thread may change only what is below some folders; it may read as
    before. Raises OSError.
    """
    attributes = _RulesetAttributes(_CHANGE & _known(abi()), 0, 0)
    kernel_calls.gain_no_privileges()
    _restrict(attributes, ((folder, _CHANGE) for folder in folders))


def _known(level: int) -> int:
    """The rights that a kernel with this ABI knows."""
    return _FIRST_UNKNOWN.get(level, IOCTL_DEV << 1) - 1


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
        # A directory takes every right, a file only its own.
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        beneath = _PathBeneath(rights if is_folder else rights & _OF_FILES, place)
        kernel_calls.landlock_add_rule(ruleset, _PATH_BENEATH, beneath)
    finally:
        os.close(place)
