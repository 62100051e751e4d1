"""Runs with ranks on another machine, reached through a simulated ssh on a second address."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TIMEOUT_SECONDS, Agent, all_exit, log, manifest
from launch_helpers import FORKED, TORCHRUN, TRAINING, check_recordings, manifest_of, run, start
from ridgeline_agent.system.process_tree import descendants

SSH = """\
#!{python}
# Like ssh: `ssh HOST COMMAND...` passes the command to a shell on the host.
import json, os, socket, sys, threading
try:
    connection = socket.create_connection((sys.argv[1], {port}))
except OSError:
    sys.exit(255)
connection.sendall(json.dumps(" ".join(sys.argv[2:])).encode() + b"\\n")
def send():
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := connection.recv(65536):
    os.write(1, data)
"""


class SshServer:
    """Serves `ssh` on a second address.

    The processes that it starts have their own folder and environment, and the agent is not their
    parent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.port: int = self._listener.getsockname()[1]
        self.processes: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            line = b""
            while not line.endswith(b"\n"):
                line += connection.recv(1)
            variables = {"PATH": "/usr/bin:/bin", "HOME": "/", "TMPDIR": str(self._folder)}
            with connection, open(self._folder.parent / "errors", "ab") as errors:
                command = ["sh", "-c", json.loads(line)]
                self.processes.append(
                    subprocess.Popen(
                        command,
                        stdin=connection,
                        stdout=connection,
                        stderr=errors,
                        cwd="/",
                        env=variables,
                    )
                )

    def close(self) -> None:
        self._listener.close()
        for process in self.processes:
            process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[SshServer]:
    (tmp_path / "remote" / "tmp").mkdir(parents=True)
    server = SshServer(tmp_path / "remote" / "tmp")
    yield server
    server.close()


@pytest.fixture
def remote_launcher(tmp_path: Path, ssh_server: SshServer) -> dict[str, Any]:
    """A launcher on another machine, where the project is in a different folder."""
    project, remote, tools = tmp_path / "project", tmp_path / "remote", tmp_path / "tools"
    for folder in (project, remote / "tree", tools):
        folder.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(SSH.format(python=sys.executable, port=ssh_server.port))
    ssh.chmod(0o700)
    return {
        "remote": [str(ssh), "127.0.0.2"],
        "python": sys.executable,
        "command": [
            *TORCHRUN[:3],
            *("--nproc-per-node", "2", "--master-addr", "127.0.0.2"),
            *("--master-port", str(20000 + os.getpid() % 10000)),
        ],
        "paths": {str(project): str(remote / "tree")},
    }


def remaining_remote_folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "remote" / "tmp").glob("ridgeline-*"))


def test_remote_run(launch_agent: Agent, tmp_path: Path, remote_launcher: dict[str, Any]) -> None:
    tree = tmp_path / "remote" / "tree"
    text = TRAINING.replace(
        "{step_hook}", "print('remote', os.getcwd(), __file__, sorted(os.environ))"
    )
    (tree / "train.py").write_text(text)
    project = tmp_path / "project"
    variables = {"CONFIGURED_VARIABLE": "x"}
    finished = run(launch_agent, project, launcher=remote_launcher, env=variables)
    assert finished["outcome"] == "complete", (finished, log(project)[-2000:])
    check_recordings(project)
    assert manifest_of(project, 1)["files"][0]["path"] == "train.py"
    printed = log(project).decode()
    assert f"remote {tree} {tree / 'train.py'}" in printed and "CONFIGURED_VARIABLE" in printed
    launch_agent.close()
    assert remaining_remote_folders(tmp_path) == []


def test_remote_run_that_raises(
    launch_agent: Agent, tmp_path: Path, remote_launcher: dict[str, Any]
) -> None:
    (tmp_path / "remote" / "tree" / "train.py").write_text("import torch\n1 / 0\n")
    project = tmp_path / "project"
    finished = run(launch_agent, project, launcher={**remote_launcher, **FORKED})
    assert finished["outcome"] == "failed", (finished, log(project)[-2000:])
    assert "rank 0: ZeroDivisionError" in finished["message"]
    assert manifest(project)["failure"]["frames"][-1] == {"file": 0, "line": 2, "name": "<module>"}


def test_end_of_input_terminates_remote_ranks(
    launch_agent: Agent, tmp_path: Path, remote_launcher: dict[str, Any], ssh_server: SshServer
) -> None:
    tree, tmp = tmp_path / "remote" / "tree", tmp_path / "remote" / "tmp"
    (tree / "train.py").write_text("import time\ntime.sleep(600)\n")
    start(launch_agent, tmp_path / "project", launcher=remote_launcher)
    end = time.monotonic() + TIMEOUT_SECONDS
    while len(list(tmp.glob("ridgeline-*/out/ranks/*.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    processes = descendants(ssh_server.processes[0].pid)
    launch_agent.close()
    assert len(processes) >= 3 and all_exit(processes)
    ssh_server.close()
    assert remaining_remote_folders(tmp_path) == []


def test_unreachable_machine(
    launch_agent: Agent, tmp_path: Path, remote_launcher: dict[str, Any]
) -> None:
    launcher = {**remote_launcher, "remote": [remote_launcher["remote"][0], "127.0.0.3"]}
    finished = run(launch_agent, tmp_path / "project", launcher=launcher)
    assert finished["outcome"] == "exited"
    assert "lost the connection to the other machine (exit code 255)" in finished["message"]


def test_remote_folder_that_does_not_exist(
    launch_agent: Agent, tmp_path: Path, remote_launcher: dict[str, Any]
) -> None:
    project = tmp_path / "project"
    launcher = {**remote_launcher, "paths": {str(project): "/no/such/tree"}}
    finished = run(launch_agent, project, launcher=launcher)
    assert "folder /no/such/tree does not exist on the launcher's machine" in finished["message"]
