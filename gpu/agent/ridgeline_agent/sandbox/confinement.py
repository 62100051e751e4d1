"""Confines a process that runs a workspace's code without having been asked to: an estimate of
half-typed text must have no effect that outlives it.

On Linux the kernel holds it: Landlock for files, a seccomp filter for everything else. It is in
force before the first line of the program, for the process and all that it starts, and cannot be
undone. Where the kernel cannot hold it, estimates are refused, unless the request says
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

# Checkpoints are left out of an estimate; what is left is logs.
LARGEST_FILE = 256 * 2**20
# Root's are not counted by the system; the supervisor does (process/supervise.py).
_MOST_NEW_PROCESSES = 500
# Pretends that this machine has no sandbox, to try what becomes of estimates then. They are
# refused, so a workspace that sets it gains nothing.
_PRETENDED = "RIDGELINE_PRETEND_NO_SANDBOX"
# Some keep their data in memory, in /dev/shm.
_READ_DEVICES = ("/dev/random", "/dev/urandom", "/dev/shm")
_USED_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_GPU_DEVICES = (
    "/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg", "/dev/nvhost*", "/dev/nvgpu", "/dev/nvmap",
)  # fmt: skip
# What the simulated GPUs of our tests share with one another.
_OF_SIMULATED_GPUS = "/dev/shm"


class NotConfinedError(RuntimeError):
    """The process could not be confined. The text says why."""


@dataclass(frozen=True)
class Level:
    """What this machine's kernel can hold."""

    # Landlock's ABI; 0 where there is none.
    landlock: int
    seccomp: bool
    # Why estimates cannot be confined, or None where they can.
    why: str | None

    @property
    def holds(self) -> bool:
        """Whether estimates can be confined."""
        return self.why is None

    def to_json(self) -> dict[str, Any]:
        """For the `ready` event (docs/agent-protocol.md)."""
        return {
            "landlock": self.landlock,
            "seccomp": self.seccomp,
            "holds": self.holds,
            "why": self.why,
        }


def level() -> Level:
    """What the kernel offers. Takes microseconds."""
    if _PRETENDED in os.environ:
        return Level(0, False, f"{_PRETENDED} is set")
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
    """Confines this process, and whatever it starts, to the folder of its output. False where the
    request lets it go on unconfined and the kernel cannot hold it.

    Of the open descriptors only the standard ones and `kept` stay. Raises NotConfinedError.
    """
    temporary = os.path.join(spec.out, "tmp")
    os.makedirs(temporary, mode=0o700, exist_ok=True)
    os.environ.update({"TMPDIR": temporary, "TEMP": temporary, "TMP": temporary})
    tempfile.tempdir = temporary
    # Who may go on unconfined is confined all the same where that can be.
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
        # The kernel confines the calling thread. A probe on a GPU may have a driver's beside it;
        # of a workspace's code it runs nothing.
        raise NotConfinedError(f"the process already has {threads} threads")
    if not on_gpu:
        _limit_resources()  # A driver has files of its own.
    _be_killed_first()
    try:
        if not on_gpu:
            _let_go_of_files({0, 1, 2, *kept})
        privileges.give_up()
        landlock.restrict(_rules(out, reads_root, on_gpu), landlock_abi)
        seccomp.install(landlock_abi, on_gpu)
    except OSError as error:
        raise NotConfinedError(f"the kernel refuses it: {error.strerror or error}") from None


def _rules(out: str, reads_root: bool, on_gpu: bool) -> list[tuple[str, int]]:
    from . import landlock

    # Everything below the root but devices: opening one can have effects, and reading a terminal
    # takes what is typed there.
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
            rules.append((_OF_SIMULATED_GPUS, landlock.WRITE_BELOW))
    return rules


def _reads_root(spec: RunSpec) -> bool:
    """Whether the project lies in the root folder itself, as it does in some containers. Python
    lists the folders that it imports from.
    """
    return "/" in (os.path.realpath(spec.root), os.path.realpath(spec.cwd))


def _uses_gpu(spec: RunSpec) -> bool:
    """Whether it is a probe that will use one. An estimate never does (process/run.py)."""
    if spec.probe is None or spec.device == "cpu":
        return False
    import torch

    return bool(torch.cuda.is_available())


def _let_go_of_files(kept: set[int]) -> None:
    """Puts an empty file in the place of what is open: neither Landlock nor the filter knows of
    descriptors that were opened before. Their numbers stay taken, because whoever had them may
    close them yet.
    """
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor in kept or descriptor == empty:
            continue
        with contextlib.suppress(OSError):
            os.fstat(descriptor)  # The folder's own descriptor is closed by now.
            os.dup2(empty, descriptor, inheritable=False)
    os.close(empty)


def _limit_resources() -> None:
    """The size of a file; and the processes, which the system counts for all of the user's."""
    import resource

    limits = [(resource.RLIMIT_FSIZE, LARGEST_FILE)]
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg") as load:
        running = int(load.read().split()[3].partition("/")[2])
        limits.append((resource.RLIMIT_NPROC, running + _MOST_NEW_PROCESSES))
    for kind, limit in limits:
        most = resource.getrlimit(kind)[1]
        if most == resource.RLIM_INFINITY or most > limit:
            # Also the upper limit, so that the program cannot set it higher again.
            resource.setrlimit(kind, (limit, limit))


def _be_killed_first() -> None:
    """Where it fills the memory faster than the supervisor looks, the kernel ends it and not the
    person's own programs.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _system() -> str:
    return {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
