"""No process outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_driver import TIMEOUT_SECONDS, TRAINING, Agent, all_exit
from ridgeline_agent.system import process_tree

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

# Forks a worker and a daemon in its own session. Both ignore the exit of their parents.
PROCESS_TREE = """\
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for name in ('worker', 'daemon'):
    if os.fork() == 0:
        if name == 'daemon':
            os.setsid()
            if os.fork():
                os._exit(0)
        with open(name + '.new', 'w') as file:
            file.write(str(os.getpid()))
        os.rename(name + '.new', name)
        time.sleep(600)
with open('main.new', 'w') as file:
    file.write(str(os.getpid()))
os.rename('main.new', 'main')
time.sleep(600)
"""


def wait_for_process_tree(folder: Path) -> list[int]:
    """Waits until all processes of a PROCESS_TREE run have started and returns them."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not all((folder / name).exists() for name in ("main", "worker", "daemon")):
        assert time.monotonic() < end
        time.sleep(0.01)
    return [int((folder / name).read_text()) for name in ("main", "worker", "daemon")]


def agent_processes(agent: Agent) -> list[int]:
    """The supervisor and its worker."""
    return [agent.process.pid, *process_tree.descendants(agent.process.pid)]


def test_end_of_input_terminates_all_processes(tmp_path: Path) -> None:
    with Agent() as agent:
        agent.wait_for("ready")
        agent.start(tmp_path, PROCESS_TREE)
        processes = wait_for_process_tree(tmp_path) + agent_processes(agent)
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert all_exit(processes)


def test_end_of_input_while_importing_torch() -> None:
    with Agent() as agent:
        while len(processes := agent_processes(agent)) < 2:
            time.sleep(0.01)
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert all_exit(processes)


def test_killed_server_leaves_no_processes(tmp_path: Path) -> None:
    # A process between this test and the agent acts as the server and is killed.
    tests = str(Path(__file__).parent)
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import pathlib, sys, time
sys.path.insert(0, {tests!r})
from agent_driver import Agent
agent = Agent()
agent.wait_for('ready')
agent.start(pathlib.Path({str(tmp_path)!r}), {PROCESS_TREE!r})
time.sleep(600)
""",
        ]
    )
    try:
        processes = wait_for_process_tree(tmp_path) + process_tree.descendants(server.pid)
        assert len(processes) >= 6
    finally:
        server.kill()
        server.wait()
    assert all_exit(processes)


def test_killed_zygote_terminates_run_and_is_replaced(agent: Agent, tmp_path: Path) -> None:
    identifier = agent.start(tmp_path, PROCESS_TREE)
    processes = wait_for_process_tree(tmp_path)
    zygote = process_tree.descendants(agent.process.pid)[0]
    os.kill(zygote, signal.SIGKILL)
    assert all_exit(processes)
    finished = agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "exited"
    assert "the process that starts runs was terminated" in finished["message"]
    assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"


def test_killed_supervisor_terminates_run(tmp_path: Path) -> None:
    with Agent() as agent:
        agent.wait_for("ready")
        identifier = agent.start(tmp_path, "import time\ntime.sleep(600)\n")
        agent.wait_for("started", id=identifier)
        processes = agent_processes(agent)
        agent.process.kill()
        assert all_exit(processes)


def test_descendants_without_children_file(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        expected = process_tree.descendants(os.getpid())
        monkeypatch.setattr(process_tree, "_LISTS_CHILDREN", False)
        assert set(process_tree.descendants(os.getpid())) == set(expected)
        assert child.pid in expected
    finally:
        child.kill()
        child.wait()


def test_exit_ends_the_agent() -> None:
    with Agent() as agent:
        agent.send({"op": "exit"})
        assert agent.process.wait(TIMEOUT_SECONDS) == 0


def test_many_runs_leave_no_processes(agent: Agent, tmp_path: Path) -> None:
    before = len(agent_processes(agent))
    for _ in range(20):
        agent.run(tmp_path, "import os\nos.fork()\n")
    assert len(agent_processes(agent)) == before
