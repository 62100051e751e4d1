"""The worker process below the supervisor: it imports torch, and forks for each run or serves one
run itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import sys
from typing import Any

from ..protocol.channel import Sender, read_objects, take_standard_streams
from ..protocol.spec import SpecError, entry_from_json
from ..sandbox import confinement
from ..side_effects import policy as side_effects
from ..system import process_tree
from .interpreter import Interpreter
from .preimport import Preimports


def serve(arguments: list[str], agent_folder: str, loaded_at_start: frozenset[str]) -> None:
    """Serves the supervisor until the end of its input. The argument after `--worker` is its
    process ID.
    """
    supervisor = int(arguments[arguments.index("--worker") + 1])
    process_tree.die_with_parent(supervisor)
    requests, descriptor = take_standard_streams()
    events = Sender(descriptor)
    interpreter = Interpreter(agent_folder, loaded_at_start)
    interpreter.set_library_variables()
    if "--standby" in arguments:
        side_effects.prepare()
    try:
        _import_common_modules()
    except BaseException as error:
        # Also SystemExit, because nothing works without torch.
        events.send(
            {
                "event": "unusable",
                "message": _torch_error(error),
                "python": platform.python_version(),
            }
        )
        return
    interpreter.hide_agent()
    worker = Worker(requests, events, interpreter, arguments)
    worker.begin()
    with contextlib.suppress(BrokenPipeError):
        for request in read_objects(requests):
            worker.answer(request)
    os._exit(0)


class Worker:
    """Answers `prepare`, `run` and `mark`. It has one thread, and waits for the end of each run."""

    def __init__(
        self, requests: int, events: Sender, interpreter: Interpreter, arguments: list[str]
    ) -> None:
        self._requests = requests
        self._events = events
        self._interpreter = interpreter
        self._standby = "--standby" in arguments
        self._cuda = "--cuda" in arguments
        self._preimports = Preimports(events, check_after_each=not self._standby)

    def begin(self) -> None:
        """Reports that it is ready, or that forking from here would not be safe."""
        from . import zygote

        self._cuda_usable = zygote.cuda_is_usable()
        if self._standby:
            if self._cuda:
                zygote.make_cuda_context()
        else:
            if (why := zygote.why_unsafe()) is not None:
                self._events.send(
                    {"event": "unsafe", "module": None, "why": f"importing torch: {why}"}
                )
                return
            self._zygote = zygote.Zygote(
                self._requests, self._events, self._interpreter, self._cuda
            )
        self._send_ready(prepared=False)

    def answer(self, request: dict[str, Any]) -> None:
        """Serves one request of the supervisor, which has validated it."""
        op = request.get("op")
        if op == "prepare":
            self._prepare(request)
        elif op in ("run", "estimate", "probe"):
            if self._standby:
                from .run import run_here

                run_here(request, self._events, self._interpreter)
            else:
                self._zygote.run(request)
        elif op == "mark" and not self._standby:
            self._zygote.write_end_marker(str(request.get("mark", "")))

    def _prepare(self, request: dict[str, Any]) -> None:
        excluded = request.get("exclude")
        if request.get("preimport", True):
            try:
                entry = entry_from_json(request.get("entry"))
                root = str(request.get("root", ""))
            except SpecError:
                pass  # The run with the same entry reports the error.
            else:
                if not self._preimports.take(
                    entry, root, frozenset(excluded if isinstance(excluded, dict) else ())
                ):
                    return
        self._send_ready(prepared=True)

    def _send_ready(self, prepared: bool) -> None:
        import torch

        if not self._standby:
            self._zygote.prepare_to_fork()
        self._events.send(
            {
                "event": "ready",
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "cuda": self._cuda_usable,
                "sandbox": confinement.level().to_json(),
                "dropped": self._preimports.failed,
                "prepared": prepared,
            }
        )


def _import_common_modules() -> None:
    # Imports leave almost nothing to collect, and without the collector they take a fifth less time
    # (4.2 s with torch 2.15).
    gc.disable()
    try:
        import torch._dynamo
        import torch.autograd.profiler
        import torch.optim
        import torch.profiler
        import torch.utils.data  # noqa: F401

        from ..record import recorder  # noqa: F401
        from . import run  # noqa: F401
    finally:
        gc.enable()


def _torch_error(error: BaseException) -> str:
    where = sys.executable
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return (
            f"{where} has no torch. Select the project's interpreter (its .venv or conda "
            "environment), or install "
            f"torch into this one: {where} -m pip install torch"
        )
    return f"{where} cannot import torch: {type(error).__name__}: {error}"
