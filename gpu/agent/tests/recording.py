"""Runs small programs under the recorder and reads their recordings.

As a script, `recording.py REQUEST` executes a `run` request, given as JSON, in this process.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
import textwrap
import types
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

# The first optimizer of a process imports this module, which takes a second. Import it only once.
import torch._dynamo  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.protocol.spec import RunSpec
from ridgeline_agent.record.recorder import Recorder
from ridgeline_agent.record.timing import Timer

KINDS = (
    "LINE",
    "PUSH",
    "POP",
    "MODULE_ENTER",
    "MODULE_EXIT",
    "PHASE_ENTER",
    "PHASE_EXIT",
    "ITERATION",
    "RECORDER",
    "STARTED",
    "EXPRESSION",
)
PHASES = ("data", "forward", "backward", "optimizer")


class PrintingHost:
    """Prints what a real host would report to the server."""

    def progress(self, stage: str, done: int, total: int) -> None:
        os.write(1, f"progress {stage} {done} {total}\n".encode())

    def timed(self, iterations: int) -> None:
        pass

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        os.write(1, f"\nfinished {outcome} {message or ''}\n".encode())
        os._exit(0)


def use_simulated_times() -> None:
    """Makes timed iterations take `iteration_ms`, if the program defines this global variable.

    Decisions of the recorder that depend on times are then the same on every machine.
    """
    end = Timer.end

    def end_with_simulated_time(timer: Timer, now_ns: int) -> None:
        end(timer, now_ns)
        iteration_ms = getattr(sys.modules["__main__"], "iteration_ms", None)
        if iteration_ms is not None:
            timer.host_ns[-1] = iteration_ms * 1_000_000

    Timer.end = end_with_simulated_time  # type: ignore[method-assign]


def run(request: dict[str, Any]) -> NoReturn:
    """Runs the request's script under the recorder and exits the process."""
    spec = RunSpec.from_json(request)
    host = PrintingHost()
    os.makedirs(spec.out, exist_ok=True)
    os.chdir(spec.cwd)
    script = spec.entry.target
    sys.argv = [script, *spec.args]
    sys.path.insert(0, os.path.dirname(script))
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    module.__file__ = script
    use_simulated_times()
    recorder = Recorder(spec, host, Overlay(spec.root, spec.overlay))
    recorder.install()
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)
    except BaseException as error:
        recorder.failed(error)
        host.finish("failed", repr(error))
    host.finish(recorder.ended())


@dataclass
class Recording:
    """The files and the output of a recorded run."""

    folder: Path
    source: Path
    printed: str
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The outcome reported to the host, or an empty string."""
        last = self.printed.strip().splitlines()[-1:] or [""]
        return last[0].split()[1] if last[0].startswith("finished ") else ""

    def trace(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "trace.json").read_text())
        return loaded

    def operators(self, name: str) -> list[dict[str, Any]]:
        """The trace events with this name."""
        return [event for event in self.trace()["traceEvents"] if event.get("name") == name]

    def events(self) -> list[tuple[int, str, int, Any, int]]:
        """The events of the line log: `(time, kind, thread, name of a, b)`."""
        content = (self.folder / "lines.bin").read_bytes()
        assert content[:16] == struct.pack("<8sII", b"RDGLINES", 1, 24)
        events = []
        for time_ns, kind, thread, a, b in struct.iter_unpack("<qBxHIIxxxx", content[16:]):
            name: Any = a
            if kind < 3:
                name = self.manifest["codes"][a]["name"]
            elif kind < 5:
                name = self.manifest["modules"][a]["path"]
            elif kind < 7:
                name = PHASES[a]
            events.append((time_ns, KINDS[kind], thread, name, b))
        return events

    def stack_at(self, time_ns: int, thread: int = 0) -> list[tuple[str, int]]:
        """The stack of user code at a time, outermost frame first: `(function, line)`."""
        stack: list[tuple[str, int]] = []
        for event_ns, kind, event_thread, name, line in self.events():
            if event_ns > time_ns:
                break
            if event_thread != thread:
                continue
            if kind == "PUSH":
                stack.append((name, line))
            elif kind == "POP":
                stack.pop()
            elif kind == "LINE":
                assert stack[-1][0] == name, "LINE event outside the top frame"
                stack[-1] = (name, line)
        return stack

    def time_of(self, operator: dict[str, Any]) -> int:
        """The midpoint of an operator on the realtime clock, in nanoseconds."""
        base = int(self.trace().get("baseTimeNanoseconds", 0))
        return base + round((operator["ts"] + operator["dur"] / 2) * 1000)

    def module(self, path: str) -> dict[str, Any]:
        modules = [module for module in self.manifest["modules"] if module["path"] == path]
        assert len(modules) == 1, [module["path"] for module in self.manifest["modules"]]
        return dict(modules[0])

    def line_of(self, mark: str, file: str = "train.py") -> int:
        """The number of the only line that contains `mark`."""
        lines = (self.source / file).read_text().splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if mark in line]
        assert len(numbers) == 1, (mark, numbers)
        return numbers[0]


def record(source: str, files: dict[str, str] | None = None, **request: Any) -> Recording:
    """Records `source` as `train.py`, with `files` in the same folder, in a forked child process.

    Forking is safe here for the same reason as in the zygote: this process runs no operators. The
    files are deleted with the returned object.
    """
    folder = Path(tempfile.mkdtemp(prefix="ridgeline-recorder-"))
    project = folder / "project"
    for name, text in {"train.py": source, **(files or {})}.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    full_request = {
        "id": 1,
        "out": str(folder / "out"),
        "root": str(project),
        "cwd": str(project),
        "entry": {"kind": "script", "path": str(project / "train.py")},
        **request,
    }
    printed = folder / "printed.txt"
    child = os.fork()
    if child == 0:
        try:
            descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            # Undo pytest's capturing.
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            run(full_request)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    recording = Recording(folder / "out", project, printed.read_text(errors="replace"))
    weakref.finalize(recording, shutil.rmtree, folder, ignore_errors=True)
    path = recording.folder / "manifest.json"
    if path.exists():
        recording.manifest = json.loads(path.read_text())
    return recording


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
