"""Hostile system calls, resource limits, and harmless programs that work in the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_driver import Agent
from estimate_helpers import TRAINING, estimate
from sandbox_helpers import TOOLS, files, run_attempts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def test_dangerous_system_calls(agent: Agent, tmp_path: Path) -> None:
    printed = run_attempts(
        agent,
        tmp_path,
        """
number = {
    "x86_64": {"bpf": 321, "userfaultfd": 323, "clone": 56, "add_key": 248},
    "aarch64": {"bpf": 280, "userfaultfd": 282, "clone": 220, "add_key": 217},
}[os.uname().machine]
def ask(name, *arguments):
    attempt(name, lambda: call(libc.syscall, number.get(name, name), *arguments))
ask(425, 8, ctypes.create_string_buffer(256))  # io_uring_setup
ask("bpf", 0, None, 0)
ask("userfaultfd", 1)
ask("clone", 0x10000011, None, None, None, None)  # with a user namespace
ask("add_key", b"user", b"ridgeline-test", b"y", 1, -2)
ask(470)  # a system call that does not exist yet
attempt("unshare", lambda: call(libc.unshare, 0x10000000))
attempt("mount", lambda: call(libc.mount, b"none", b"out/tmp", b"tmpfs", 0, None))
attempt("chroot", lambda: call(libc.chroot, b"out"))
privileges = [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs:")]
attempt("privileges", lambda: 1 / 0 if "1" in privileges[0] else "there are")
""",
    )
    assert len(printed.splitlines()) == 10, printed
    for line in printed.splitlines():
        assert ": refused" in line, printed


def test_unlimited_files(agent: Agent, tmp_path: Path) -> None:
    text = """
for number in range(10**6):
    write(f"out/{number}", b"x")
"""
    finished = estimate(agent, tmp_path, TOOLS + text + "while True: time.sleep(1)\n")
    assert finished["outcome"] == "exited", finished
    assert "10000 files" in finished["message"]


def test_unlimited_folders(agent: Agent, tmp_path: Path) -> None:
    text = """
os.chdir("out")
while True:
    libc.mkdir(b"d" * 200, 0o700)
    libc.chdir(b"d" * 200)
    time.sleep(0.001)
"""
    finished = estimate(agent, tmp_path, TOOLS + text)
    assert finished["outcome"] == "exited", finished


def test_unlimited_processes(agent: Agent, tmp_path: Path) -> None:
    text = """
for _ in range(600):
    os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
while True:
    time.sleep(0.1)
"""
    finished = estimate(agent, tmp_path, TOOLS + text)
    assert finished["outcome"] == "exited", finished
    assert "processes" in finished["message"]


def test_standby_agent_is_sandboxed(standby: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    printed = run_attempts(standby, tmp_path, 'attempt("write", lambda: write("notes.txt"))\n')
    assert "write: refused" in printed
    assert files(tmp_path) == {"notes.txt": b"kept"}
    # The process of the next run is not sandboxed.
    finished = standby.run(tmp_path, TOOLS + 'write("notes.txt")\n' + TRAINING)
    assert finished["outcome"] in ("complete", "short"), finished
    assert files(tmp_path) == {"notes.txt": b"changed"}


def test_multiprocessing_locks_and_shared_values(agent: Agent, tmp_path: Path) -> None:
    printed = run_attempts(
        agent,
        tmp_path,
        """
import multiprocessing, tempfile
value, lock = multiprocessing.Value("i", 3), multiprocessing.Lock()
queue = multiprocessing.get_context("fork").Queue()
def add():
    with lock, value.get_lock():
        value.value += 1
    queue.put(value.value)
children = [multiprocessing.get_context("fork").Process(target=add) for _ in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
print("value:", value.value, sorted(queue.get() for _ in children))
torch.ones(3).share_memory_()
torch.nn.Linear(2, 2).share_memory()
with tempfile.NamedTemporaryFile("w+") as file:
    file.write("x")
print("temporary:", tempfile.gettempdir())
""",
    )
    assert "value: 6 [4, 5, 6]" in printed
    assert f"temporary: {tmp_path}/out/tmp" in printed


def test_process_group_with_one_rank(agent: Agent, tmp_path: Path) -> None:
    printed = run_attempts(
        agent,
        tmp_path,
        """
import torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
dist.barrier()
print("ranks:", dist.get_world_size())
""",
    )
    assert "ranks: 1" in printed


def test_crash_and_timeout_report_location(agent: Agent, tmp_path: Path) -> None:
    finished = estimate(agent, tmp_path, "import ctypes\nctypes.string_at(1)\n")
    assert (finished["outcome"], finished["signal"]) == ("crashed", 11), finished
    assert finished["frames"][-1]["line"] == 2
    endless = "import itertools\nsum(itertools.repeat(1))\n"
    finished = estimate(agent, tmp_path, endless, limits={"seconds": 2})
    assert finished["outcome"] == "timeout", finished
    assert finished["frames"][0]["line"] == 2


def test_estimate_requires_sandbox(tmp_path: Path) -> None:
    with Agent(env={"RIDGELINE_PRETEND_NO_SANDBOX": "1"}) as agent:
        ready = agent.wait_for("ready")
        assert ready["sandbox"]["holds"] is False
        text = f"open({str(tmp_path / 'ran')!r}, 'w')\n" + TRAINING
        finished = estimate(agent, tmp_path, text)
        assert finished["outcome"] == "exited"
        assert "cannot be confined" in finished["message"]
        assert not (tmp_path / "ran").exists()
        # With permission, the estimate runs, and is still sandboxed if possible.
        (tmp_path / "notes.txt").write_bytes(b"kept")
        text = 'attempt("write", lambda: write("notes.txt"))\n'
        assert "write: refused" in run_attempts(agent, tmp_path, text, without_sandbox=True)


def test_sandbox_level_is_reported(agent: Agent) -> None:
    level = agent.ready["sandbox"]
    assert level["holds"] is True
    assert level["why"] is None
    assert level["landlock"] >= 1
    assert level["seccomp"] is True
