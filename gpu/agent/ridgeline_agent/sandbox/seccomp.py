"""A seccomp filter (seccomp(2)) for estimates, where Landlock does not apply: sockets, signals,
other processes, the machine, and permissions and times of files.

All other calls are allowed. Landlock controls their effect on files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ..system import kernel_calls
from . import landlock
from .syscall_numbers import FIRST_UNKNOWN, X32, number_of

_SET_MODE_FILTER = 1
_GET_ACTION_AVAILABLE = 2
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Classic BPF: load a word of the call, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

# Seem to succeed, but do nothing: programs copy permissions and times along with files, and lock
# files.
_IGNORED = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat",
    "utime", "utimes", "futimesat", "utimensat",
    # A lock on a file that is open for reading would block other processes.
    "flock",
)  # fmt: skip
_NOT_SUPPORTED = (
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr",
)  # fmt: skip
# Programs work without these, as on older kernels.
_MISSING = (
    "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret",
)  # fmt: skip
_FORBIDDEN = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise",
    "process_mrelease", "migrate_pages", "move_pages",
    # mounts and namespaces
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "unshare", "setns",
    # the kernel and the machine
    "bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd", "swapon",
    "swapoff", "reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname",
    "setdomainname", "iopl", "ioperm", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup",
    "fanotify_init", "open_by_handle_at", "lookup_dcookie", "nfsservctl", "uselib", "_sysctl",
    # shared memory, semaphores and queues that outlive their process
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd",
    "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify",
)  # fmt: skip
_NAMESPACES = 0x7E020080  # CLONE_NEWNS to CLONE_NEWNET, and CLONE_NEWTIME
_UNIX = 1
_SOCKET_TYPE = 0xF
_STREAM, _SEQPACKET = 1, 5
_OPEN_MODE, _TRUNCATE = 0o3, 0o1000
# Terminal queries, the number of readable bytes, and descriptor flags. Others change files that are
# open for reading (FS_IOC_SETFLAGS) and type into terminals (TIOCSTI).
_HARMLESS_IOCTLS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)
_HARMFUL_IOCTLS = (
    *(0x5412, 0x541C),  # TIOCSTI, TIOCLINUX
    *(0x40086602, 0x40046602, 0x401C5820),  # FS_IOC_SETFLAGS (two), FS_IOC_FSSETXATTR
)
# In place of a step's values: a null pointer, where both halves are compared.
_NULL: tuple[int, ...] = ()
# fcntl(2): locks of files, of processes (F_SETLK, F_SETLKW) and of descriptors (F_OFD_SETLK,
# F_OFD_SETLKW), and leases (F_SETLEASE).
_LOCKS = (6, 7, 37, 38, 1024)
# Signals to any process when a descriptor is ready (F_SETOWN, F_SETSIG, F_SETOWN_EX).
_SIGNALS = (8, 10, 15)


class _Verdict(Enum):
    """The result for a call if a step's condition holds. Otherwise the next step decides."""

    ALLOWED = "allowed"
    REFUSED = "refused"


@dataclass(frozen=True)
class _Step:
    """Whether an argument, masked with `mask`, is one of `values`, or none of them if `negated`."""

    then: _Verdict
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negated: bool = False


@dataclass(frozen=True)
class _Rule:
    """A system call: the first matching step decides; without one, `ends_refused` does."""

    name: str
    error: int
    steps: tuple[_Step, ...] = ()
    ends_refused: bool = True


def is_available() -> bool:
    """Whether this kernel supports filters that deny calls."""
    if not kernel_calls.machine():
        return False
    try:
        wanted = ctypes.byref(ctypes.c_uint32(_ERRNO))
        kernel_calls.seccomp(_GET_ACTION_AVAILABLE, 0, wanted)
    except OSError:
        return False
    return True


def install(landlock_abi: int, on_gpu: bool) -> None:
    """Denies the calls listed here to the calling thread and its children.

    `landlock_abi` is what Landlock enforces already. `on_gpu` allows the calls of a GPU driver.
    Raises OSError. No new privileges must have been set before.
    """
    machine = kernel_calls.machine()
    program = _assemble(_rules(landlock_abi, on_gpu, os.getpid()), machine)

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    code = ctypes.create_string_buffer(program, len(program))
    filter_ = _Program(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    kernel_calls.seccomp(_SET_MODE_FILTER, 0, ctypes.byref(filter_))


def _rules(landlock_abi: int, on_gpu: bool, process: int) -> list[_Rule]:
    rules = [_Rule(name, 0) for name in _IGNORED]
    rules += [_Rule(name, errno.ENOTSUP) for name in _NOT_SUPPORTED]
    rules += [_Rule(name, errno.ENOSYS) for name in _MISSING]
    rules += [_Rule(name, errno.EPERM) for name in _FORBIDDEN]
    rules.append(_Rule("clone", errno.EPERM, (_allow_where(0, (0,), _NAMESPACES),)))
    rules += _of_sockets(on_gpu)
    rules += _of_other_processes(process)
    if on_gpu:
        steps = (_Step(_Verdict.REFUSED, 1, _HARMFUL_IOCTLS),)
        rules.append(_Rule("ioctl", errno.EPERM, steps, ends_refused=False))
    else:
        rules.append(_Rule("ioctl", errno.ENOTTY, (_allow_where(1, _HARMLESS_IOCTLS),)))
    without_effect: tuple[int, ...] = _LOCKS
    if landlock_abi < landlock.HOLDS_SIGNALS:
        rules += _of_signals(process)
        without_effect += _SIGNALS
    steps = (_Step(_Verdict.REFUSED, 1, without_effect),)
    rules.append(_Rule("fcntl", 0, steps, ends_refused=False))
    if landlock_abi < landlock.HOLDS_TRUNCATE:
        rules += _of_truncation()
    return rules


def _of_sockets(on_gpu: bool) -> list[_Rule]:
    """Sockets reach other machines, and other programs through paths that Landlock does not
    control. Only pairs of connected sockets are allowed.
    """
    if on_gpu:
        # CUDA uses Unix sockets, among them a machine-wide one if GPUs are shared (MPS).
        return [_Rule("socket", errno.EACCES, (_allow_where(0, (_UNIX,)),))]
    # A datagram socket could still send to any address.
    pair = (
        _Step(_Verdict.REFUSED, 0, (_UNIX,), negated=True),
        _allow_where(1, (_STREAM, _SEQPACKET), _SOCKET_TYPE),
    )
    rules = [_Rule(name, errno.EACCES) for name in ("socket", "connect", "bind", "listen")]
    rules.append(_Rule("socketpair", errno.EACCES, pair))
    return rules


def _of_other_processes(process: int) -> list[_Rule]:
    """A process may set its own priority, CPU affinity and limits, but not those of others."""
    own = (0, process)
    rules = [
        _Rule(name, errno.EPERM, (_allow_where(0, own),))
        for name in ("sched_setscheduler", "sched_setparam", "sched_setaffinity", "sched_setattr")
    ]
    # For a process or a group, but never for all processes of the user.
    rules += [
        _Rule(name, errno.EPERM, (_Step(_Verdict.REFUSED, 0, (everyone,)), _allow_where(1, own)))
        for name, everyone in (("setpriority", 2), ("ioprio_set", 3))
    ]
    # Without new limits it only queries.
    steps = (_allow_where(0, own), _Step(_Verdict.ALLOWED, 2, _NULL))
    rules.append(_Rule("prlimit64", errno.EPERM, steps))
    return rules


def _of_signals(process: int) -> list[_Rule]:
    """Allowed to itself and to its group. Signal 0 only checks whether a process exists."""
    to_self = _allow_where(0, (process,))
    steps = (to_self, _allow_where(0, (0,)), _allow_where(1, (0,)))
    rules = [_Rule("kill", errno.EPERM, steps), _Rule("pidfd_send_signal", errno.EPERM)]
    rules += [
        _Rule(name, errno.EPERM, (to_self,))
        for name in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
    ]
    return rules


def _of_truncation() -> list[_Rule]:
    """A file can be truncated without being opened for writing."""
    truncating = (_TRUNCATE, _TRUNCATE | _OPEN_MODE)
    rules = [_Rule("truncate", errno.EACCES), _Rule("openat2", errno.ENOSYS)]
    rules += [
        _Rule(
            name,
            errno.EACCES,
            (_Step(_Verdict.REFUSED, flags, truncating, _TRUNCATE | _OPEN_MODE),),
            ends_refused=False,
        )
        for name, flags in (("open", 1), ("openat", 2))
    ]
    return rules


def _allow_where(argument: int, values: tuple[int, ...], mask: int = 0xFFFFFFFF) -> _Step:
    return _Step(_Verdict.ALLOWED, argument, values, mask)


def _assemble(rules: Iterable[_Rule], machine: str) -> bytes:
    code = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        # Also covers -1, with which a tracer skips a call.
        _instruction(_AT_LEAST, X32, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_AT_LEAST, FIRST_UNKNOWN, 0, 1),
        _instruction(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for rule in rules:
        number = number_of(rule.name, machine)
        if number is not None:
            body = _body(rule)
            code.append(_instruction(_EQUAL, number, 0, len(body)))
            code += body
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)


def _body(rule: _Rule) -> list[bytes]:
    refused = _instruction(_RETURN, _ERRNO | rule.error)
    allowed = _instruction(_RETURN, _ALLOW)
    code: list[bytes] = []
    for step in rule.steps:
        code += _step(step, allowed if step.then is _Verdict.ALLOWED else refused)
    code.append(refused if rule.ends_refused else allowed)
    return code


def _step(step: _Step, end: bytes) -> list[bytes]:
    at = _ARGUMENTS_AT + 8 * step.argument
    if step.values == _NULL:
        upper = [_instruction(_LOAD, at + 4), _instruction(_EQUAL, 0, 0, 3)]
        return [*upper, _instruction(_LOAD, at), _instruction(_EQUAL, 0, 0, 1), end]
    # For all other arguments here, the kernel uses the lower 32 bits and ignores the rest.
    code = [_instruction(_LOAD, at)]
    if step.mask != 0xFFFFFFFF:
        code.append(_instruction(_AND, step.mask))
    for place, value in enumerate(step.values):
        # The verdict follows the comparisons.
        left = len(step.values) - 1 - place
        if step.negated:
            code.append(_instruction(_EQUAL, value, left + 1, 0))
        else:
            code.append(_instruction(_EQUAL, value, left, 0 if left else 1))
    code.append(end)
    return code


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
