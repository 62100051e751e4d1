"""Hostile programs that affect other processes or start their own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from agent_driver import TIMEOUT_SECONDS, Agent, all_exit, is_alive, log
from estimate_helpers import TRAINING, estimate
from sandbox_helpers import TOOLS, files, run_attempts, sleeping_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def test_signals_to_other_processes(agent: Agent, tmp_path: Path) -> None:
    with sleeping_process() as other:
        printed = run_attempts(
            agent,
            tmp_path,
            f"""
other = {other.pid}
attempt("kill", lambda: os.kill(other, signal.SIGKILL))
attempt("tkill", lambda: call(libc.syscall, {tkill()}, other, 9))
attempt("queue", lambda: call(libc.sigqueue, other, 9, None))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(other), 9))
attempt("child", lambda: os.system(f"kill -9 {{other}}"))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, other, 19))
attempt("affinity", lambda: os.sched_setaffinity(other, {{0}}))
import fcntl
def own_signal():
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, other)
    fcntl.fcntl(reader, 10, 9)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b"x")
attempt("signal of a pipe", own_signal)
if os.fork() == 0:
    os.kill(other, signal.SIGKILL)
    os._exit(0)
time.sleep(0.1)
""",
        )
        for name in ("kill", "tkill", "queue", "pidfd", "priority", "affinity"):
            assert f"{name}: refused" in printed, printed
        assert is_alive(other.pid)
        assert os.getpriority(os.PRIO_PROCESS, other.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert os.sched_getaffinity(other.pid) == os.sched_getaffinity(0)


def tkill() -> int:
    return 200 if os.uname().machine == "x86_64" else 130


def test_signals_to_own_processes(agent: Agent, tmp_path: Path) -> None:
    printed = run_attempts(
        agent,
        tmp_path,
        """
def end_child():
    child = os.fork()
    if child == 0:
        time.sleep(600)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
attempt("end", end_child)
def abort():
    child = os.fork()
    if child == 0:
        os.abort()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
attempt("abort", abort)
""",
    )
    assert "end: -15" in printed
    assert "abort: -6" in printed


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_children(agent: Agent, tmp_path: Path, method: str) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    (tmp_path / "work.py").write_text(
        "def work(path):\n    with open(path, 'w') as file:\n        file.write('changed')\n"
    )
    text = f"""
import multiprocessing, work
import __main__
def start():
    child = multiprocessing.get_context({method!r}).Process(
        target=work.work, args=({str(tmp_path / "notes.txt")!r},)
    )
    file = vars(__main__).pop("__file__")  # Otherwise the child imports the program, and torch.
    try:
        child.start()
    finally:
        __main__.__file__ = file
    child.join(30)
    return child.exitcode
attempt("child", start)
"""
    printed = run_attempts(agent, tmp_path, text, limits={"seconds": 60})
    assert "child: 1" in printed or "child: refused" in printed, printed
    assert files(tmp_path)["notes.txt"] == b"kept"


def test_files_written_by_other_programs(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    printed = run_attempts(
        agent,
        tmp_path,
        """
child = os.fork()
if child == 0:
    os.execv("/bin/sh", ["sh", "-c", "echo changed > notes.txt; touch new.txt; rm -f notes.txt"])
print("shell:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
child = os.posix_spawn("/bin/sh", ["sh", "-c", "echo changed > notes.txt"], os.environ)
print("spawned:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("system:", libc.system(b"echo changed > notes.txt"))
""",
    )
    assert "shell:" in printed and "spawned:" in printed and "system:" in printed
    assert files(tmp_path) == {"notes.txt": b"kept"}


def test_inspecting_other_processes(agent: Agent, tmp_path: Path) -> None:
    with sleeping_process() as other:
        printed = run_attempts(
            agent,
            tmp_path,
            f"""
attempt("ptrace", lambda: call(libc.ptrace, 16, {other.pid}, None, None))
attempt("seize", lambda: call(libc.ptrace, 0x4206, {other.pid}, None, None))
attempt("memory", lambda: open("/proc/{other.pid}/mem", "r+b"))
attempt("environment", lambda: open("/proc/{other.pid}/environ").read())
attempt("score", lambda: write("/proc/{other.pid}/oom_score_adj", b"1000"))
attempt("name", lambda: write("/proc/{other.pid}/comm", b"changed"))
attempt("descriptor", lambda: write("/proc/{other.pid}/fd/1"))
attempt("limits", lambda: __import__("resource").prlimit({other.pid}, 7, (10, 10)))
""",
        )
        for line in printed.splitlines()[:8]:
            assert ": refused" in line, printed
        assert Path(f"/proc/{other.pid}/oom_score_adj").read_text().strip() != "1000"


def test_supervisor_is_not_accessible(agent: Agent, tmp_path: Path) -> None:
    printed = run_attempts(
        agent,
        tmp_path,
        """
parent = os.getppid()
attempt("kill", lambda: os.kill(parent, signal.SIGKILL))
attempt("ptrace", lambda: call(libc.ptrace, 16, parent, None, None))
attempt("memory", lambda: write(f"/proc/{parent}/mem"))
""",
    )
    for line in printed.splitlines()[:3]:
        assert ": refused" in line, printed


def test_forged_events_on_agent_pipe(tmp_path: Path) -> None:
    """The program finds the pipe to the supervisor and writes events to it."""
    with sleeping_process() as other, Agent() as agent:
        agent.wait_for("ready")
        text = f"""
import json
pid = {other.pid}
child = os.fork()
if child == 0:
    os.setsid()
    time.sleep(600)
events = [
    {{"event": "warm", "pid": child}},
    {{"event": "started", "id": 1, "pid": pid}},
    {{"event": "unusable", "message": "no more"}},
    {{"event": "unsafe", "module": None, "why": "no more"}},
    {{"event": "refused", "id": 1, "why": "no more"}},
]
for name in os.listdir("/proc/self/fd"):
    if int(name) > 99:
        for event in events:
            try:
                os.write(int(name), json.dumps(event).encode() + b"\\n")
            except OSError:
                pass
print(child, flush=True)
while True:
    libc.usleep(100000)
"""
        (tmp_path / "train.py").write_text(TOOLS + text)
        entry = {"kind": "script", "path": str(tmp_path / "train.py")}
        identifier = agent.start_entry(tmp_path, entry, op="estimate")
        printed = tmp_path / "out" / "log.txt"
        end = time.monotonic() + TIMEOUT_SECONDS
        while not printed.exists() or not printed.read_bytes().endswith(b"\n"):
            assert time.monotonic() < end
            time.sleep(0.01)
        agent.send({"op": "cancel", "id": identifier})
        finished = agent.wait_for("finished", id=identifier)
        assert finished["outcome"] == "cancelled", finished
        assert all_exit([int(log(tmp_path).split()[0])])
        assert is_alive(other.pid)
        ready = estimate(agent, tmp_path, TRAINING)
        assert ready["outcome"] == "complete"


def test_daemons_are_terminated(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    text = f"""
import threading
def later():
    while True:
        time.sleep(0.05)
        try:
            write({str(tmp_path / "notes.txt")!r})
        except OSError:
            pass
threading.Thread(target=later, daemon=True).start()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    libc.prctl(1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write("out/daemon", str(os.getpid()).encode())
    later()
while not os.path.exists("out/daemon"):
    time.sleep(0.01)
"""
    run_attempts(agent, tmp_path, text)
    daemon = int((tmp_path / "out" / "daemon").read_text())
    assert all_exit([daemon])
    time.sleep(0.2)
    assert files(tmp_path) == {"notes.txt": b"kept"}
