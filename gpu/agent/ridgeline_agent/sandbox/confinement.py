"""Sandboxes a process that runs workspace code without an explicit request: an estimate of
half-typed code must have no lasting effects.

On Linux the kernel enforces it: Landlock for files, a seccomp filter for everything else. It takes
effect before the first line of the program, for the process and all its children, and cannot be
undone. Where the kernel does not support it, estimates are refused, unless the request has
`without_sandbox`.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..protocol.spec import RunSpec
from ..system import process_tree

# Estimates write no checkpoints, so the largest files are logs.
MAX_FILE_BYTES = 256 * 2**20
# The system does not count root's processes; the supervisor does (process/supervise.py).
_MAX_NEW_PROCESSES = 500
# Simulates a machine without a sandbox, for tests. Estimates are refused then, so a workspace that
# sets it gains nothing.
_PRETEND_VARIABLE = "RIDGELINE_PRETEND_NO_SANDBOX"
# Some programs keep their data in memory, in /dev/shm.
_READ_DEVICES = ("/dev/random", "/dev/urandom", "/dev/shm")
_USED_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_GPU_DEVICES = (
    "/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg", "/dev/nvhost*", "/dev/nvgpu", "/dev/nvmap",
)  # fmt: skip
# Shared by the simulated GPUs of our tests.
_SIMULATED_GPU_FOLDER = "/dev/shm"


class NotConfinedError(RuntimeError):
    """The process could not be sandboxed. The message has the reason."""


@dataclass(frozen=True)
class Level:
    """The sandbox features of this machine's kernel."""

    # Landlock's ABI version; 0 if not supported.
    landlock: int
    seccomp: bool
    # Why estimates cannot be sandboxed, or None if they can.
    why: str | None

    @property
    def holds(self) -> bool:
        """Whether estimates can be sandboxed."""
        return self.why is None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of the `ready` event (docs/agent-protocol.md)."""
        return {
            "landlock": self.landlock,
            "seccomp": self.seccomp,
            "holds": self.holds,
            "why": self.why,
        }


def level() -> Level:
    """Queries the kernel. Takes microseconds."""
    if _PRETEND_VARIABLE in os.environ:
        return Level(0, False, f"{_PRETEND_VARIABLE} is set")
    return _real_level()


def _real_level() -> Level:
    if not process_tree.ON_LINUX:
        return Level(0, False, f"no sandbox is available on {_system()}")
    from ..system import kernel_calls
    from . import landlock, seccomp

    if not kernel_calls.machine():
        return Level(0, False, "no sandbox is available for this CPU architecture")
    filters = seccomp.is_available()
    try:
        abi = landlock.abi()
    except OSError as error:
        return Level(0, filters, f"the kernel does not support Landlock ({error.strerror})")
    return Level(abi, filters, None if filters else "the kernel does not support seccomp filters")


def confine(spec: RunSpec, kept: Iterable[int]) -> bool:
    """Restricts this process and its future children to the folder of its output. Returns False if
    the kernel does not support it and the request allows running without a sandbox.

    Only the standard descriptors and those in `kept` stay open. Raises NotConfinedError.
    """
    temporary = os.path.join(spec.out, "tmp")
    os.makedirs(temporary, mode=0o700, exist_ok=True)
    os.environ.update({"TMPDIR": temporary, "TEMP": temporary, "TMP": temporary})
    tempfile.tempdir = temporary
    # Sandbox where possible, even if the request allows running without.
    here = _real_level() if spec.without_sandbox else level()
    try:
        if not here.holds:
            raise NotConfinedError(here.why)
        confine_to(spec.out, here.landlock, _reads_root(spec), _uses_gpu(spec), kept)
    except NotConfinedError:
        if not spec.without_sandbox:
            raise
        if sys.platform != "win32" and spec.estimate:
            _limit_resources()
        return False
    return True


def confine_to(
    out: str, landlock_abi: int, reads_root: bool, on_gpu: bool, kept: Iterable[int]
) -> None:
    """See `confine`. Raises NotConfinedError."""
    from . import landlock, privileges, seccomp

    threads = process_tree.threads_of_this_process()
    if threads != 1 and not on_gpu:
        # Landlock applies to the calling thread only. A probe on a GPU may have the driver's
        # threads too, but it runs no workspace code.
        raise NotConfinedError(f"the process already has {threads} threads")
    if not on_gpu:
        _limit_resources()  # The driver has its own files.
    _prefer_for_oom_kill()
    try:
        if not on_gpu:
            _replace_open_files({0, 1, 2, *kept})
        privileges.give_up()
        landlock.restrict(_rules(out, reads_root, on_gpu), landlock_abi)
        seccomp.install(landlock_abi, on_gpu)
    except OSError as error:
        raise NotConfinedError(f"the kernel refuses it: {error.strerror or error}") from None


def _rules(out: str, reads_root: bool, on_gpu: bool) -> list[tuple[str, int]]:
    from . import landlock

    # Everything below the root except devices: opening one can have effects, and reading a terminal
    # takes the user's input.
    readable = ["/"] if reads_root else [
        entry.path for entry in os.scandir("/") if entry.name != "dev" and not entry.is_symlink()
    ]  # fmt: skip
    rules = [(path, landlock.READ) for path in readable]
    rules += [(path, landlock.READ_FILE | landlock.READ_DIR) for path in _READ_DEVICES]
    rules += [(path, landlock.USE_DEVICE) for path in _USED_DEVICES]
    rules.append((out, landlock.WRITE_BELOW))
    if on_gpu:
        devices = [path for pattern in _GPU_DEVICES for path in glob.glob(pattern)]
        rules += [(path, landlock.USE_DEVICE | landlock.READ_DIR) for path in devices]
        if "SIMGPU_MACHINE" in os.environ:
            rules.append((_SIMULATED_GPU_FOLDER, landlock.WRITE_BELOW))
    return rules


def _reads_root(spec: RunSpec) -> bool:
    """Whether the project is in the root folder itself, as in some containers. Python lists the
    folders that it imports from.
    """
    return "/" in (os.path.realpath(spec.root), os.path.realpath(spec.cwd))


def _uses_gpu(spec: RunSpec) -> bool:
    """Whether it is a probe on a GPU. Estimates never use one (process/run.py)."""
    if spec.probe is None or spec.device == "cpu":
        return False
    import torch

    return bool(torch.cuda.is_available())


def _replace_open_files(kept: set[int]) -> None:
    """Replaces open files with an empty one, because neither Landlock nor the filter covers
    descriptors that are already open. The descriptor numbers stay in use, because their owners may
    still close them.
    """
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor in kept or descriptor == empty:
            continue
        with contextlib.suppress(OSError):
            os.fstat(descriptor)  # os.listdir's own descriptor is already closed.
            os.dup2(empty, descriptor, inheritable=False)
    os.close(empty)


def _limit_resources() -> None:
    """Limits the file size, and the number of processes, which the system counts per user."""
    import resource

    limits = [(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)]
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg") as load:
        running = int(load.read().split()[3].partition("/")[2])
        limits.append((resource.RLIMIT_NPROC, running + _MAX_NEW_PROCESSES))
    for kind, limit in limits:
        most = resource.getrlimit(kind)[1]
        if most == resource.RLIM_INFINITY or most > limit:
            # Also the hard limit, so the program cannot raise it again.
            resource.setrlimit(kind, (limit, limit))


def _prefer_for_oom_kill() -> None:
    """If it fills the memory faster than the supervisor polls, the kernel kills it first instead of
    the user's programs.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _system() -> str:
    return {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
