"""Runs a launcher on another machine, without a shared folder.

The remote command (`ssh host`) starts a Python with a few lines that read the agent from their
input, unpack it into a private folder, and run it. Requests are sent over the same input; events
and recordings come back over the output. When the input ends, because the run was cancelled or this
process is gone, all processes there are killed and the folder is removed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import shlex
import shutil
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable
from typing import IO, Any

from ..process.run_log import RunLog
from ..protocol.channel import read_objects, write_all
from ..protocol.spec import RunSpec
from ..system import process_tree
from .command import with_ranks_paths
from .recording_transfer import ReceivedRecording

# Twelve digits with the size, the agent as an archive, then the protocol. mkdtemp's folder is only
# accessible to this user.
_BOOTSTRAP = """\
import io,os,sys,tempfile,zipfile
def take(n):
    b=b""
    while len(b)<n:
        p=os.read(0,n-len(b))
        if not p:
            sys.exit("the agent did not arrive")
        b+=p
    return b
a=zipfile.ZipFile(io.BytesIO(take(int(take(12)))))
f=tempfile.mkdtemp(prefix="ridgeline-")
a.extractall(f+"/agent")
os.mkdir(f+"/out",0o700)
e=sys.executable
os.execv(e,[e,"-u",f+"/agent/boot.py","--launch","--carried",f])
"""
# Added to the run's own limit: for the connection, and for sending the recordings back.
_GRACE_SECONDS = 5.0
_TRANSFER_SECONDS = 300.0
_TICK_SECONDS = 0.2
_CANCEL_SECONDS = 4.0


class RemoteLauncher:
    """A run on another machine."""

    def __init__(
        self,
        spec: RunSpec,
        request: dict[str, Any],
        boot: str,
        send: Callable[[dict[str, Any]], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._request = request
        self._folder = os.path.dirname(boot)
        self._send = send
        self._is_cancelled = is_cancelled
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=16)
        self._log = RunLog(spec.out, spec.limits.log_bytes)
        self._log_lock = threading.Lock()
        self._recent_output = b""

    def run(self) -> dict[str, Any]:
        """Runs it to its end. Returns the event that ends it."""
        self._clear()
        launcher = self._spec.launcher
        if launcher is None:
            raise AssertionError("the request has a launcher")
        command = remote_command(launcher.remote, launcher.python)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return self._finished("exited", f"{command[0]} could not be started: {error.strerror}")
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("it was started with pipes")
        self._send({"event": "started", "id": self._spec.id, "pid": process.pid})
        errors = threading.Thread(target=self._read_errors, args=(process.stderr,), daemon=True)
        errors.start()
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        # A thread, because a blocked input must not delay the timeout.
        threading.Thread(target=self._write, args=(process.stdin,), daemon=True).start()
        try:
            return self._watch(process)
        finally:
            self._end(process)
            errors.join(timeout=1.0)
            self._log.close()

    def _clear(self) -> None:
        for name in os.listdir(self._spec.out):
            path = os.path.join(self._spec.out, name)
            if name.startswith("rank-"):
                shutil.rmtree(path, ignore_errors=True)
            elif name in ("manifest.json", "trace.json", "lines.bin", "batch.json"):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _write(self, pipe: IO[bytes]) -> None:
        request = self._remote_request()
        archive = packed(self._folder)
        with contextlib.suppress(OSError):
            write_all(pipe.fileno(), b"%012d" % len(archive))
            write_all(pipe.fileno(), archive)
            write_all(pipe.fileno(), json.dumps(request).encode("ascii") + b"\n")

    def _remote_request(self) -> dict[str, Any]:
        launcher = self._spec.launcher
        if launcher is None:
            raise AssertionError("the request has a launcher")
        # The agent there has its own folder for the recording; the key only needs to be a string.
        translated = with_ranks_paths(self._spec, self._request, self._spec.out)
        # Without a command, it is one process: the agent starts its own Python.
        own = {"command": list(launcher.command) or ["env"]}
        return {**translated, "launcher": own}

    def _read(self, pipe: IO[bytes]) -> None:
        for event in read_objects(pipe.fileno()):
            self._inbox.put(event)
        self._inbox.put(None)

    def _read_errors(self, pipe: IO[bytes]) -> None:
        while True:
            try:
                data = os.read(pipe.fileno(), 65536)
            except (OSError, ValueError):
                return
            if not data:
                return
            self._recent_output = (self._recent_output + data)[-2000:]
            self._write_log(data)

    def _write_log(self, data: bytes) -> None:
        with self._log_lock:
            self._log.write(data)

    def _watch(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        received = ReceivedRecording(self._spec.out, self._write_log)
        seconds = self._spec.limits.seconds
        end = None if seconds is None else time.monotonic() + seconds + _GRACE_SECONDS
        while True:
            now = time.monotonic()
            if self._is_cancelled():
                # The end of its input ends everything there.
                return self._finished("cancelled", "cancelled")
            if end is not None and now > end:
                why = f"stopped after {seconds} s: the other machine did not respond"
                return self._finished("timeout", why)
            try:
                event = self._inbox.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                continue
            if event is None:
                return self._lost(process)
            kind = event.get("event")
            if kind == "progress":
                self._send({**event, "id": self._spec.id})
            elif kind == "file":
                if end is not None and not received.has_begun:
                    end = now + _TRANSFER_SECONDS
                received.take(event)
            elif kind == "finished":
                return {**event, "id": self._spec.id}

    def _lost(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        last_lines = self._recent_output.decode("utf-8", "replace").strip().splitlines()[-3:]
        more = f": {' / '.join(last_lines)}" if last_lines else ""
        code = "" if process.returncode is None else f" (exit code {process.returncode})"
        return self._finished("exited", f"lost the connection to the other machine{code}{more}")

    def _finished(self, outcome: str, message: str) -> dict[str, Any]:
        return {
            "event": "finished",
            "id": self._spec.id,
            "outcome": outcome,
            "message": message,
            "signal": None,
            "code": None,
            "frames": [],
        }

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Closes the input of the remote command, which ends the agent there, and then ends the
        command.
        """
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_CANCEL_SECONDS)
        if process_tree.ON_LINUX:
            process_tree.kill_descendants(os.getpid(), frozenset(), seconds=1.0)
        else:
            process_tree.kill_group(process.pid)
        process.poll()


def remote_command(remote: tuple[str, ...], python: str) -> list[str]:
    """Returns the command that starts the agent on the other machine."""
    words = [python, "-u", "-c", _BOOTSTRAP]
    if os.path.basename(remote[0]).partition(".exe")[0] == "ssh":
        # ssh(1) joins the arguments with spaces and passes them to a shell.
        words = [shlex.quote(word) for word in words]
    return [*remote, *words]


def packed(folder: str) -> bytes:
    """Returns the agent's files as an archive."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, folders, names in os.walk(folder):
            folders[:] = sorted(one for one in folders if one not in ("__pycache__", "tests"))
            for name in sorted(names):
                if name.endswith(".py"):
                    file = os.path.join(path, name)
                    archive.write(file, os.path.relpath(file, folder).replace(os.sep, "/"))
    return written.getvalue()
