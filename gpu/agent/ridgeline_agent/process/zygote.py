"""The parent that has torch imported, and forks for each run within a few milliseconds.

It runs no tensor operation. One that is spread over threads, or one backward pass, starts threads
that a fork does not copy, and its children would wait for them for ever.
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

# What drivers open when they are first called. Asking NVML for the number of GPUs opens none of the
# first two.
_OF_DRIVERS = (
    "/dev/nvidia-uvm",
    "/dev/kfd",  # ROCm
    "/dev/dxg",  # WSL
    "/dev/nvhost-",  # Jetson, up to JetPack 6
    "/dev/nvgpu/",  # and since
    "/dev/nvmap",
)
# A driver that takes longer to count its GPUs hangs. The first call loads kernel modules, and on a
# machine with many GPUs takes seconds.
_DRIVER_SECONDS = 30.0


class Zygote:
    """Forks, waits, and says how the child ended."""

    def __init__(
        self, requests: int, events: Sender, interpreter: Interpreter, keep_cuda: bool
    ) -> None:
        self._requests = requests
        self._events = events
        self._interpreter = interpreter
        self._keep_cuda = keep_cuda
        # A child that has a CUDA context ready and waits for its run: its process and the pipe to
        # it.
        self._warm: tuple[int, int] | None = None

    def settle(self) -> None:
        """Makes ready to fork: collects what is garbage by now, and leaves the rest out of later
        collections, because a collection writes to every object and so copies every page.
        """
        side_effects.ask_ahead()
        gc.collect()
        gc.freeze()
        self._cool_down()
        self._warm_up()

    def run(self, request: dict[str, Any]) -> None:
        """Serves one run, and returns when its process has ended."""
        if (why := why_unsafe()) is not None:
            self._events.send({"event": "refused", "id": request.get("id"), "why": why})
            return
        # A program may have made the pipe of the log non-blocking, for all that share it.
        os.set_blocking(2, True)
        child = self._wake(request) if _may_be_warm(request) else None
        if child is None:
            zygote = os.getpid()
            child = os.fork()
            if child == 0:
                self._be_child(zygote, request)
        _, status = os.waitpid(child, 0)
        self._events.send(
            {
                "event": "exited",
                "id": request.get("id"),
                "status": os.waitstatus_to_exitcode(status),
            }
        )

    def mark(self, mark: str) -> None:
        """Writes the end of a run into the log, and makes ready for the next one."""
        write_all(2, mark.encode())
        self._warm_up()

    def _be_child(self, zygote: int, request: dict[str, Any]) -> None:
        import torch

        from .run import run_here

        try:
            self._leave(zygote)
            # What torch itself says about the fork; `why_unsafe` has to guess it from outside.
            if torch.cuda._is_in_bad_fork():
                why = "CUDA was initialized before the fork"
                self._events.send({"event": "refused", "id": request.get("id"), "why": why})
                os._exit(0)
            run_here(request, self._events, self._interpreter)
        finally:
            # Nothing of the zygote's own may go on in the child.
            os._exit(70)

    def _leave(self, zygote: int) -> None:
        """A session of its own, so that signals of one do not reach the other, an end together
        with the zygote, and no hand on its requests.
        """
        process_tree.die_with_parent(zygote)
        os.setsid()
        os.close(self._requests)

    def _cool_down(self) -> None:
        """Ends the child that waits, because it lacks what was imported since."""
        if self._warm is None:
            return
        child, pipe = self._warm
        self._warm = None
        os.close(pipe)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def _warm_up(self) -> None:
        """Forks a child that makes a context and waits for its run."""
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
                    self._be_child(zygote, request)
            finally:
                os._exit(70)
        os.close(read_end)
        self._warm = (child, write_end)
        self._events.send({"event": "warm", "pid": child})

    def _wake(self, request: dict[str, Any]) -> int | None:
        """Gives the run to the child that waits with a context, if it is still there."""
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
    """Why a child that is forked now could hang or fail, or None where it cannot."""
    threads = process_tree.threads_of_this_process()
    if threads != 1:
        return f"there are {threads} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialized"
    for device in _open_devices():
        if device.startswith(_OF_DRIVERS):
            return f"the GPU driver is in use ({device})"
    return None


def cuda_is_usable(limit: float = _DRIVER_SECONDS) -> bool:
    """Whether torch can use a GPU here. Asked in a child, because the question calls the driver. No
    device file answers it: Jetson, WSL and containers have other ones than a server, or none.
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
    """How a child ended; None where a driver kept it for longer than `limit` seconds."""
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
    # One that waits within a broken kernel module does not end even so, and nobody waits for it.
    os.waitpid(child, os.WNOHANG)
    return None


def make_cuda_context() -> None:
    """Creates the context on the default GPU, which takes longest of all that comes before the
    first iteration.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def _may_be_warm(request: dict[str, Any]) -> bool:
    """Whether the run can have a context that was made before its environment was known."""
    if request.get("op") == "estimate":
        # It uses no GPU, and the threads of a driver could not be confined.
        return False
    variables = request.get("env") or {}
    settled_early = ("CUDA", "NVIDIA", "PYTORCH", "TORCH", "HIP", "ROCR")
    return request.get("device", "auto") in ("auto", "cuda") and not any(
        name.startswith(settled_early) for name in variables
    )


def _open_devices() -> list[str]:
    devices = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                devices.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return devices
