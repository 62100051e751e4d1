"""A small language client over standard input and output. Uses only the standard library."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]


class Client:
    """A connection to one server. Answers the server's requests, and stores every notification with
    its time.
    """

    def __init__(self, command: list[str], root: Path, options: Message | None = None) -> None:
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.ids = itertools.count(1)
        self.responses: dict[int, queue.SimpleQueue[Message]] = {}
        self.notifications: queue.SimpleQueue[tuple[float, Message]] = queue.SimpleQueue()
        self.write_lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        self.request(
            "initialize",
            {
                "processId": None,
                "rootUri": root.as_uri(),
                "workspaceFolders": [{"uri": root.as_uri(), "name": root.name}],
                "capabilities": {
                    "general": {"positionEncodings": ["utf-8"]},
                    "window": {"workDoneProgress": True},
                    "workspace": {
                        "inlayHint": {"refreshSupport": True},
                        "codeLens": {"refreshSupport": True},
                    },
                    "textDocument": {"inlayHint": {}, "hover": {"contentFormat": ["markdown"]}},
                },
                "initializationOptions": {"trusted": True, **(options or {})},
            },
        )
        self.notify("initialized", {})

    def request(self, method: str, params: Any, timeout: float = 600.0) -> Any:
        """Returns the result of a request. Raises an exception for an error response."""
        number = next(self.ids)
        self.responses[number] = queue.SimpleQueue()
        self._write({"id": number, "method": method, "params": params})
        response = self.responses[number].get(timeout=timeout)
        del self.responses[number]
        if "error" in response:
            raise RuntimeError(f"{method}: {response['error']}")
        return response["result"]

    def notify(self, method: str, params: Any) -> None:
        self._write({"method": method, "params": params})

    def wait(
        self, what: str, matches: Callable[[Message], bool], timeout: float = 600.0
    ) -> tuple[float, Message]:
        """Returns the first matching notification or server request from now on, with its time."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                received, message = self.notifications.get(
                    timeout=max(0.0, deadline - time.monotonic())
                )
            except queue.Empty:
                raise TimeoutError(f"the server did not send: {what}") from None
            if matches(message):
                return received, message

    def close(self) -> None:
        self.request("shutdown", None, timeout=10)
        self.notify("exit", None)
        self.server.wait(timeout=10)

    def _write(self, message: Message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.server.stdin is not None
        with self.write_lock:
            self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.server.stdin.flush()

    def _read(self) -> None:
        stdout = self.server.stdout
        assert stdout is not None
        while header := stdout.readline():
            length = int(header.split(b":")[1])
            while stdout.readline().strip():
                pass
            message = json.loads(stdout.read(length))
            received = time.monotonic()
            if "method" not in message:
                pending = self.responses.get(message["id"])
                if pending is not None:
                    pending.put(message)
                continue
            if "id" in message:
                self._write({"id": message["id"], "result": None})
            self.notifications.put((received, message))
