"""The zygote: it has imported torch, and forks for each run within a few milliseconds.

It runs no tensor operation. A multithreaded operation or a backward pass would start threads that a
fork does not copy, and its children would wait for them for ever.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from typing import Any

from ..protocol.channel import Sender, read_objects, write_all
from ..side_effects import policy as side_effects
from ..system import process_tree
from .interpreter import Interpreter

# Devices that drivers open when they are first called. Querying NVML for the number of GPUs opens
# neither of the first two.
_DRIVER_DEVICES = (
    "/dev/nvidia-uvm",
    "/dev/kfd",  # ROCm
    "/dev/dxg",  # WSL
    "/dev/nvhost-",  # Jetson, up to JetPack 6
    "/dev/nvgpu/",  # newer JetPack versions
    "/dev/nvmap",
)
# A driver that takes longer to count its GPUs is assumed to hang. The first call loads kernel
# modules, and takes seconds on a machine with many GPUs.
_DRIVER_SECONDS = 30.0


class Zygote:
    """Forks, waits, and reports how the child ended."""

    def __init__(
        self, requests: int, events: Sender, interpreter: Interpreter, keep_cuda: bool
    ) -> None:
        self._requests = requests
        self._events = events
        self._interpreter = interpreter
        self._keep_cuda = keep_cuda
        # A child that has a CUDA context and waits for its run: its process ID, and the pipe to it.
        self._warm: tuple[int, int] | None = None

    def prepare_to_fork(self) -> None:
        """Prepares to fork: collects garbage, and excludes the remaining objects from later
        collections, because a collection writes to every object and so would copy every page.
        """
        side_effects.check_support()
        gc.collect()
        gc.freeze()
        self._kill_warm_child()
        self._fork_warm_child()

    def run(self, request: dict[str, Any]) -> None:
        """Serves one run, and returns when its process has ended."""
        if (why := why_unsafe()) is not None:
            self._events.send({"event": "refused", "id": request.get("id"), "why": why})
            return
        # A program may have set the log's pipe to non-blocking, for all processes that share it.
        os.set_blocking(2, True)
        child = self._use_warm_child(request) if _may_use_warm_child(request) else None
        if child is None:
            zygote = os.getpid()
            child = os.fork()
            if child == 0:
                self._run_in_child(zygote, request)
        _, status = os.waitpid(child, 0)
        self._events.send(
            {
                "event": "exited",
                "id": request.get("id"),
                "status": os.waitstatus_to_exitcode(status),
            }
        )

    def write_end_marker(self, marker: str) -> None:
        """Writes the end marker of a run to the log, and prepares for the next run."""
        write_all(2, marker.encode())
        self._fork_warm_child()

    def _run_in_child(self, zygote: int, request: dict[str, Any]) -> None:
        import torch

        from .run import run_here

        try:
            self._detach(zygote)
            # torch's own check for a bad fork; `why_unsafe` only infers it from outside.
            if torch.cuda._is_in_bad_fork():
                why = "CUDA was initialized before the fork"
                self._events.send({"event": "refused", "id": request.get("id"), "why": why})
                os._exit(0)
            run_here(request, self._events, self._interpreter)
        finally:
            # None of the zygote's code may continue in the child.
            os._exit(70)

    def _detach(self, zygote: int) -> None:
        """Starts a new session, so that signals do not reach the other process; dies together with
        the zygote; and closes its requests.
        """
        process_tree.die_with_parent(zygote)
        os.setsid()
        os.close(self._requests)

    def _kill_warm_child(self) -> None:
        """Kills the waiting child, because it lacks the modules that were imported since."""
        if self._warm is None:
            return
        child, pipe = self._warm
        self._warm = None
        os.close(pipe)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def _fork_warm_child(self) -> None:
        """Forks a child that creates a CUDA context and waits for its run."""
        if not self._keep_cuda or self._warm is not None or why_unsafe() is not None:
            return
        read_end, write_end = os.pipe()
        zygote = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                os.close(write_end)
                process_tree.die_with_parent(zygote)
                side_effects.prepare()
                make_cuda_context()
                for request in read_objects(read_end):
                    os.close(read_end)
                    self._run_in_child(zygote, request)
            finally:
                os._exit(70)
        os.close(read_end)
        self._warm = (child, write_end)
        self._events.send({"event": "warm", "pid": child})

    def _use_warm_child(self, request: dict[str, Any]) -> int | None:
        """Gives the run to the child that waits with a context, if it still exists."""
        if self._warm is None:
            return None
        child, pipe = self._warm
        self._warm = None
        try:
            Sender(pipe).send(request)
        except OSError:
            with contextlib.suppress(OSError):
                os.waitpid(child, 0)
            return None
        finally:
            os.close(pipe)
        return child


def why_unsafe() -> str | None:
    """Returns why a child that is forked now could hang or fail, or None if forking is safe."""
    threads = process_tree.threads_of_this_process()
    if threads != 1:
        return f"there are {threads} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialized"
    for device in _open_devices():
        if device.startswith(_DRIVER_DEVICES):
            return f"the GPU driver is in use ({device})"
    return None


def cuda_is_usable(limit: float = _DRIVER_SECONDS) -> bool:
    """Whether torch can use a GPU. Checked in a child, because the query calls the driver. Device
    files do not answer it: Jetson, WSL and containers have others than a server, or none.
    """
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return False
    if not process_tree.ON_LINUX:
        return bool(torch.cuda.is_available())
    child = os.fork()
    if child == 0:
        usable = False
        try:
            os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
            usable = torch.cuda.is_available()
        finally:
            os._exit(0 if usable else 1)
    return _exit_status(child, limit) == 0


def _exit_status(child: int, limit: float) -> int | None:
    """Returns the child's exit status, or None if a driver blocked it for longer than `limit`
    seconds.
    """
    ends = time.monotonic() + limit
    pause = 0.001
    while time.monotonic() < ends:
        found, status = os.waitpid(child, os.WNOHANG)
        if found == child:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    time.sleep(0.05)
    # A process that is blocked in a broken kernel module does not end even then. Do not wait for
    # it.
    os.waitpid(child, os.WNOHANG)
    return None


def make_cuda_context() -> None:
    """Creates the CUDA context on the default GPU, which is the slowest part before the first
    iteration.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def _may_use_warm_child(request: dict[str, Any]) -> bool:
    """Whether the run can use a context that was created before its environment was known."""
    if request.get("op") == "estimate":
        # Estimates use no GPU, and a driver's threads could not be sandboxed.
        return False
    variables = request.get("env") or {}
    read_at_startup = ("CUDA", "NVIDIA", "PYTORCH", "TORCH", "HIP", "ROCR")
    return request.get("device", "auto") in ("auto", "cuda") and not any(
        name.startswith(read_at_startup) for name in variables
    )


def _open_devices() -> list[str]:
    devices = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                devices.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return devices
