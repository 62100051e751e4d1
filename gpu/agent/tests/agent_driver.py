"""Drives a real agent process over its pipes, as the server does."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BOOT = Path(__file__).resolve().parent.parent / "boot.py"
# Lets unit tests import the agent's modules. The agent process does not rely on this.
sys.path.insert(0, str(BOOT.parent))

# Only a failing test waits this long.
TIMEOUT_SECONDS = 120.0

TRAINING = """\
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(iterations):
    for _ in range(iterations):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
"""


class Agent:
    """An agent process and the events it has sent."""

    def __init__(
        self, *arguments: str, env: dict[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-u", str(BOOT), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if env is None else {**os.environ, **env},
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._next_id = 0
        # The `ready` event, set by fixtures that wait for it.
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the agent's stdin, as an exiting server does, and waits for its exit."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT_SECONDS)

    def send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, kind: str, **keys: Any) -> dict[str, Any]:
        """Returns the next event of this kind with these keys and skips all others."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            event = self._events.get(timeout=max(end - time.monotonic(), 0.01))
            assert event is not None, f"the agent exited before it sent {kind!r}"
            if event.get("event") == kind and all(
                event.get(key) == value for key, value in keys.items()
            ):
                return event

    def events_until_finished(self, identifier: int) -> list[dict[str, Any]]:
        """Returns all events up to and including the `finished` event of a run."""
        events: list[dict[str, Any]] = []
        while (
            not events
            or events[-1].get("event") != "finished"
            or events[-1].get("id") != identifier
        ):
            event = self._events.get(timeout=TIMEOUT_SECONDS)
            assert event is not None, "the agent exited during the run"
            events.append(event)
        return events

    def start(self, folder: Path, text: str | bytes, **keys: Any) -> int:
        """Writes `train.py` to the folder, requests a run of it, and returns the run's ID."""
        script = folder / "train.py"
        script.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.start_entry(folder, {"kind": "script", "path": str(script)}, **keys)

    def start_entry(self, folder: Path, entry: dict[str, Any], **keys: Any) -> int:
        self._next_id += 1
        request = {
            "op": "run",
            "id": self._next_id,
            "out": str(folder / "out"),
            "root": str(folder),
            "cwd": str(folder),
            "entry": entry,
            "user_code": [str(folder)],
            "iterations": {"warmup": 1, "timed": 2, "profiled": 1},
            "limits": {"seconds": TIMEOUT_SECONDS},
        }
        self.send({**request, **keys})
        return self._next_id

    def run(self, folder: Path, text: str | bytes, **keys: Any) -> dict[str, Any]:
        """Runs the text as a script and returns its `finished` event."""
        return self.wait_for("finished", id=self.start(folder, text, **keys))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest that the run in this folder wrote."""
    loaded: dict[str, Any] = json.loads((folder / "out" / "manifest.json").read_text())
    return loaded


def log(folder: Path) -> bytes:
    """The output of the run in this folder."""
    return (folder / "out" / "log.txt").read_bytes()


def is_alive(process: int) -> bool:
    """Whether a process is running. Zombies do not count."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in ("Z", "X")


def all_exit(processes: list[int]) -> bool:
    """Whether all processes exit before the test timeout, which allows for a busy machine."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while any(is_alive(process) for process in processes):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
