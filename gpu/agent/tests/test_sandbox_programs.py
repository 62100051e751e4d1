"""Hostile programs as unsaved text: each is estimated, and nothing of it must be left outside.

A program says in its log what it tried and how that ended, so that a test knows that it came to it.
What it must not have done is looked at from here.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TIMEOUT_SECONDS, Agent, all_end, is_alive, log
from estimate_helpers import TRAINING, estimate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

# What the programs share: the kernel asked directly, past everything that is patched in Python.
TOOLS = """\
import ctypes, os, signal, sys, time, torch
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print(f"{name}: refused ({type(error).__name__}: {error})", flush=True)
    else:
        print(f"{name}: {result}", flush=True)
def call(function, *arguments):
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def write(path, text=b"changed"):
    descriptor = call(libc.open, os.fsencode(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    libc.write(descriptor, text, len(text))
    libc.close(descriptor)
"""


def attempted(agent: Agent, folder: Path, text: str, **keys: Any) -> str:
    """What the program said of itself. It must have come as far as its loop."""
    finished = estimate(agent, folder, TOOLS + text + TRAINING, **keys)
    said = log(folder).decode()
    assert finished["outcome"] == "complete", (finished, said)
    return said


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that has nothing to do with the estimate."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def files(folder: Path) -> dict[str, bytes]:
    """Everything but the script and what is the estimate's own."""
    out = folder / "out"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and out not in path.parents and path.name != "train.py"
    }


def test_a_table_is_emptied(agent: Agent, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "runs.db")
    database.execute("create table runs (id integer)")
    database.executemany("insert into runs values (?)", [(one,) for one in range(5)])
    database.commit()
    said = attempted(
        agent,
        tmp_path,
        """
import sqlite3
database = sqlite3.connect("runs.db")
def empty():
    database.execute("delete from runs")
    database.commit()
    return database.execute("select count(*) from runs").fetchone()[0]
attempt("delete", empty)
import _sqlite3
database = _sqlite3.connect("runs.db")
attempt("delete past the patch", empty)
""",
    )
    # In a copy of its own.
    assert "delete: 0" in said
    assert "delete past the patch: refused" in said
    assert database.execute("select count(*) from runs").fetchone() == (5,)
    assert set(files(tmp_path)) == {"runs.db"}


def test_signals_to_another_process(agent: Agent, tmp_path: Path) -> None:
    with sleeping() as other:
        said = attempted(
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
            assert f"{name}: refused" in said, said
        assert is_alive(other.pid)
        assert os.getpriority(os.PRIO_PROCESS, other.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert os.sched_getaffinity(other.pid) == os.sched_getaffinity(0)


def tkill() -> int:
    return 200 if os.uname().machine == "x86_64" else 130


def test_its_own_processes_still_get_signals(agent: Agent, tmp_path: Path) -> None:
    said = attempted(
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
    assert "end: -15" in said
    assert "abort: -6" in said


def test_torch_writes_files_by_itself(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "kept.bin").write_bytes(b"\1" * 64)
    said = attempted(
        agent,
        tmp_path,
        """
def archive():
    writer = torch._C.PyTorchFileWriter("archive.pt")
    writer.write_record("x", b"0123", 4)
    writer.write_end_of_file()
attempt("writer", archive)
attempt("from_file", lambda: torch.from_file("new.bin", shared=True, size=1024))
attempt("map", lambda: torch.from_file("kept.bin", shared=True, size=16).fill_(7.0))
attempt("storage", lambda: torch.UntypedStorage.from_file("new2.bin", True, 64))
attempt("script", lambda: torch.jit.script(torch.nn.Linear(2, 2)).save("script.pt"))
""",
    )
    assert "writer: refused" in said
    assert "from_file: refused" in said
    assert files(tmp_path) == {"kept.bin": b"\1" * 64}


def test_files_through_ctypes(agent: Agent, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_bytes(b"kept")
    (tmp_path / "folder").mkdir()
    os.utime(kept, (1e9, 1e9))
    kept.chmod(0o640)
    before = kept.stat()
    said = attempted(
        agent,
        tmp_path,
        f"""
attempt("write", lambda: write({str(kept)!r}))
attempt("create", lambda: write("created.txt"))
attempt("unlink", lambda: call(libc.unlink, b"kept.txt"))
attempt("rename", lambda: call(libc.rename, b"kept.txt", b"moved.txt"))
attempt("into the output", lambda: call(libc.rename, b"kept.txt", b"out/moved.txt"))
attempt("link", lambda: call(libc.link, b"kept.txt", b"out/linked.txt"))
attempt("truncate", lambda: call(libc.truncate, b"kept.txt", 0))
attempt("truncate at opening", lambda: call(libc.open, b"kept.txt", os.O_TRUNC))
attempt("mkdir", lambda: call(libc.mkdir, b"made", 0o777))
attempt("rmdir", lambda: call(libc.rmdir, b"folder"))
attempt("mkfifo", lambda: call(libc.mkfifo, b"out/pipe", 0o666))
attempt("mknod", lambda: call(libc.mknod, b"out/disk", 0o60666, 8 << 8))
libc.chmod(b"kept.txt", 0o777)
libc.utime(b"kept.txt", None)
libc.chown(b"kept.txt", 1, 1)
attempt("xattr", lambda: call(libc.setxattr, b"kept.txt", b"user.x", b"y", 1, 0))
flags = ctypes.c_long(0x80)
descriptor = os.open("kept.txt", os.O_RDONLY)
set_flags = ctypes.c_ulong(0x40086602)
attempt("attributes", lambda: call(libc.ioctl, descriptor, set_flags, ctypes.byref(flags)))
""",
    )
    for name in (
        *("write", "create", "unlink", "rename", "into the output", "link", "truncate"),
        *("truncate at opening", "mkdir", "rmdir", "mkfifo", "mknod", "xattr", "attributes"),
    ):
        assert f"\n{name}: refused" in "\n" + said, (name, said)
    assert files(tmp_path) == {"kept.txt": b"kept"}
    assert (tmp_path / "folder").is_dir()
    assert not (tmp_path / "made").exists()
    after = kept.stat()
    assert (after.st_mode, after.st_mtime, after.st_uid) == (
        before.st_mode,
        before.st_mtime,
        before.st_uid,
    )
    assert os.listxattr(kept) == []


def test_symlinks(agent: Agent, tmp_path: Path) -> None:
    target = tmp_path / "target.txt"
    target.write_text("kept")
    (tmp_path / "here").symlink_to(target)
    said = attempted(
        agent,
        tmp_path,
        f"""
attempt("through a link", lambda: write("here"))
attempt("new link", lambda: call(libc.symlink, {str(target)!r}.encode(), b"out/ops.json"))
attempt("through ours", lambda: write("out/../target.txt"))
attempt("through /proc", lambda: write("/proc/self/cwd/target.txt"))
def reopened():
    descriptor = os.open("target.txt", os.O_RDONLY)
    write(f"/proc/self/fd/{{descriptor}}")
attempt("reopened", reopened)
""",
    )
    for name in ("through a link", "new link", "through ours", "through /proc", "reopened"):
        assert f"{name}: refused" in said, said
    assert files(tmp_path) == {"target.txt": b"kept", "here": b"kept"}


def test_datagrams(agent: Agent, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.5)
        said = attempted(
            agent,
            tmp_path,
            f"""
import _socket
def send():
    _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM).sendto(b"x", {listener.getsockname()!r})
attempt("send", send)
attempt("netlink", lambda: call(libc.socket, 16, 3, 0))
attempt("packet", lambda: call(libc.socket, 17, 3, 0))
attempt("vsock", lambda: call(libc.socket, 40, 1, 0))
""",
        )
        for name in ("send", "netlink", "packet", "vsock"):
            assert f"{name}: refused" in said, said
        with pytest.raises(socket.timeout):
            listener.recv(10)


def test_a_connection_of_torch(agent: Agent, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.5)
        said = attempted(
            agent,
            tmp_path,
            f"""
import datetime
from torch.distributed import TCPStore
short = datetime.timedelta(seconds=1)
port = {listener.getsockname()[1]}
attempt("store", lambda: TCPStore("127.0.0.1", port, None, False, timeout=short))
attempt("listening", lambda: TCPStore("127.0.0.1", 0, 1, True, short, False))
""",
        )
        assert "store: refused" in said
        assert "listening: refused" in said
        with pytest.raises(socket.timeout):
            listener.accept()


def test_unix_sockets(agent: Agent, tmp_path: Path) -> None:
    name = f"\0ridgeline-test-{os.getpid()}"
    with ExitStack() as stack:
        by_path, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        by_path.bind(str(tmp_path / "s"))
        abstract.bind(name)
        datagrams.bind(str(tmp_path / "d"))
        for listener in (by_path, abstract):
            listener.listen()
        for one in (by_path, abstract, datagrams):
            one.settimeout(0.3)
        said = attempted(
            agent,
            tmp_path,
            f"""
import _socket
def connect(address):
    connection = _socket.socket(_socket.AF_UNIX)
    connection.connect(address)
    connection.send(b"x")
attempt("path", lambda: connect("s"))
attempt("abstract", lambda: connect({name!r}))
def from_pair():
    one, _ = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    one.sendto(b"x", "d")
attempt("datagram", from_pair)
one, other = _socket.socketpair()
one.send(b"fine")
print("pair:", other.recv(4))
attempt("pair", lambda: one.connect("s"))
""",
        )
        for what in ("path", "abstract", "datagram"):
            assert f"{what}: refused" in said, said
        assert "pair: b'fine'" in said
        assert "pair: refused" in said
        for listener in (by_path, abstract):
            with pytest.raises(socket.timeout):
                listener.accept()
        with pytest.raises(socket.timeout):
            datagrams.recv(1)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_multiprocessing(agent: Agent, tmp_path: Path, method: str) -> None:
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
    said = attempted(agent, tmp_path, text, limits={"seconds": 60})
    assert "child: 1" in said or "child: refused" in said, said
    assert files(tmp_path)["notes.txt"] == b"kept"


def test_another_program_changes_files(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    said = attempted(
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
    assert "shell:" in said and "spawned:" in said and "system:" in said
    assert files(tmp_path) == {"notes.txt": b"kept"}


def test_shared_memory(agent: Agent, tmp_path: Path) -> None:
    name = f"ridgeline-test-{os.getpid()}"
    said = attempted(
        agent,
        tmp_path,
        f"""
attempt("file", lambda: write("/dev/shm/{name}"))
attempt("python", lambda: open("/dev/shm/{name}-open", "wb").write(b"x"))
attempt("shm_open", lambda: call(libc.shm_open, b"/{name}", os.O_RDWR | os.O_CREAT, 0o600))
attempt("semaphore", lambda: call(libc.semget, 4242, 1, 0o1600))
attempt("segment", lambda: call(libc.shmget, 4242, 4096, 0o1600))
attempt("queue", lambda: call(libc.msgget, 4242, 0o1600))
""",
    )
    for what in ("file", "shm_open", "semaphore", "segment", "queue"):
        assert f"{what}: refused" in said, said
    assert not list(Path("/dev/shm").glob(f"*{name}*"))


def test_what_can_do_it_without_the_calls_for_it(agent: Agent, tmp_path: Path) -> None:
    said = attempted(
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
ask(470)  # a call that is not known yet
attempt("unshare", lambda: call(libc.unshare, 0x10000000))
attempt("mount", lambda: call(libc.mount, b"none", b"out/tmp", b"tmpfs", 0, None))
attempt("chroot", lambda: call(libc.chroot, b"out"))
privileges = [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs:")]
attempt("privileges", lambda: 1 / 0 if "1" in privileges[0] else "there are")
""",
    )
    assert len(said.splitlines()) == 10, said
    for line in said.splitlines():
        assert ": refused" in line, said


def test_another_process_is_not_looked_into(agent: Agent, tmp_path: Path) -> None:
    with sleeping() as other:
        said = attempted(
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
        for line in said.splitlines()[:8]:
            assert ": refused" in line, said
        assert Path(f"/proc/{other.pid}/oom_score_adj").read_text().strip() != "1000"


def test_its_supervisor_is_not_reached(agent: Agent, tmp_path: Path) -> None:
    said = attempted(
        agent,
        tmp_path,
        """
parent = os.getppid()
attempt("kill", lambda: os.kill(parent, signal.SIGKILL))
attempt("ptrace", lambda: call(libc.ptrace, 16, parent, None, None))
attempt("memory", lambda: write(f"/proc/{parent}/mem"))
""",
    )
    for line in said.splitlines()[:3]:
        assert ": refused" in line, said


def test_what_it_says_over_the_agents_pipe(tmp_path: Path) -> None:
    """A program finds the pipe to the supervisor among its descriptors, and may say anything."""
    with sleeping() as other, Agent() as agent:
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
        said = tmp_path / "out" / "log.txt"
        until = time.monotonic() + TIMEOUT_SECONDS
        while not said.exists() or not said.read_bytes().endswith(b"\n"):
            assert time.monotonic() < until
            time.sleep(0.01)
        agent.send({"op": "cancel", "id": identifier})
        finished = agent.wait_for("finished", id=identifier)
        assert finished["outcome"] == "cancelled", finished
        assert all_end([int(log(tmp_path).split()[0])])
        assert is_alive(other.pid)
        ready = estimate(agent, tmp_path, TRAINING)
        assert ready["outcome"] == "complete"


def test_what_outlives_it(agent: Agent, tmp_path: Path) -> None:
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
    attempted(agent, tmp_path, text)
    daemon = int((tmp_path / "out" / "daemon").read_text())
    assert all_end([daemon])
    time.sleep(0.2)
    assert files(tmp_path) == {"notes.txt": b"kept"}


def test_descriptors_that_were_open_before(tmp_path: Path) -> None:
    """What a package of the project has open since it was imported ahead is not written to."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    opened = tmp_path / "open.log"
    (packages / "keeps_open.py").write_text(
        f"file = open({str(opened)!r}, 'w', buffering=1)\n"
        "import socket\nsockets = socket.socketpair()\n"
    )
    project = tmp_path / "project"
    project.mkdir()
    text = """
import keeps_open
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        try:
            os.write(int(name), b"changed")
        except OSError:
            pass
attempt("python", lambda: keeps_open.file.write("changed"))
attempt("kept", lambda: os.readlink(f"/proc/self/fd/{keeps_open.file.fileno()}"))
"""
    with Agent(env={"PYTHONPATH": str(packages)}) as agent:
        agent.wait_for("ready")
        (project / "train.py").write_text(TOOLS + text + TRAINING)
        entry = {"kind": "script", "path": str(project / "train.py")}
        agent.send({"op": "prepare", "root": str(project), "entry": entry, "preimport": True})
        ready = agent.wait_for("ready")
        assert ready["dropped_imports"] == []
        said = attempted(agent, project, text)
        assert "kept: /dev/null" in said
    assert opened.read_text() == ""


def test_files_without_end(agent: Agent, tmp_path: Path) -> None:
    text = """
for number in range(10**6):
    write(f"out/{number}", b"x")
"""
    finished = estimate(agent, tmp_path, TOOLS + text + "while True: time.sleep(1)\n")
    assert finished["outcome"] == "exited", finished
    assert "10000 files" in finished["message"]


def test_folders_without_end(agent: Agent, tmp_path: Path) -> None:
    text = """
os.chdir("out")
while True:
    libc.mkdir(b"d" * 200, 0o700)
    libc.chdir(b"d" * 200)
    time.sleep(0.001)
"""
    finished = estimate(agent, tmp_path, TOOLS + text)
    assert finished["outcome"] == "exited", finished


def test_processes_without_end(agent: Agent, tmp_path: Path) -> None:
    text = """
for _ in range(600):
    os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
while True:
    time.sleep(0.1)
"""
    finished = estimate(agent, tmp_path, TOOLS + text)
    assert finished["outcome"] == "exited", finished
    assert "processes" in finished["message"]


def test_locks_hold_nobody_up(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "locked.db").write_bytes(b"kept")
    text = """
import fcntl
file = open("locked.db", "rb")
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.lockf(file, fcntl.LOCK_SH)
write("out/locked", b"yes")
while True:
    time.sleep(0.05)
"""
    (tmp_path / "train.py").write_text(TOOLS + text)
    entry = {"kind": "script", "path": str(tmp_path / "train.py")}
    identifier = agent.start_entry(tmp_path, entry, op="estimate", limits={"seconds": 5})
    end = time.monotonic() + TIMEOUT_SECONDS
    while not (tmp_path / "out" / "locked").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    with open(tmp_path / "locked.db", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    agent.send({"op": "cancel", "id": identifier})
    agent.wait_for("finished", id=identifier)


def test_standby_is_confined_as_well(standby: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"kept")
    said = attempted(standby, tmp_path, 'attempt("write", lambda: write("notes.txt"))\n')
    assert "write: refused" in said
    assert files(tmp_path) == {"notes.txt": b"kept"}
    # The next process, for a run, is not.
    finished = standby.run(tmp_path, TOOLS + 'write("notes.txt")\n' + TRAINING)
    assert finished["outcome"] in ("complete", "short"), finished
    assert files(tmp_path) == {"notes.txt": b"changed"}


def test_locks_and_shared_values_of_good_programs(agent: Agent, tmp_path: Path) -> None:
    said = attempted(
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
    assert "value: 6 [4, 5, 6]" in said
    assert f"temporary: {tmp_path}/out/tmp" in said


def test_a_process_group_needs_no_connection(agent: Agent, tmp_path: Path) -> None:
    said = attempted(
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
    assert "ranks: 1" in said


def test_where_it_crashed_is_known(agent: Agent, tmp_path: Path) -> None:
    finished = estimate(agent, tmp_path, "import ctypes\nctypes.string_at(1)\n")
    assert (finished["outcome"], finished["signal"]) == ("crashed", 11), finished
    assert finished["frames"][-1]["line"] == 2
    endless = "import itertools\nsum(itertools.repeat(1))\n"
    finished = estimate(agent, tmp_path, endless, limits={"seconds": 2})
    assert finished["outcome"] == "timeout", finished
    assert finished["frames"][0]["line"] == 2


def test_without_a_sandbox_nothing_is_estimated(tmp_path: Path) -> None:
    with Agent(env={"RIDGELINE_PRETEND_NO_SANDBOX": "1"}) as agent:
        ready = agent.wait_for("ready")
        assert ready["sandbox"]["holds"] is False
        text = f"open({str(tmp_path / 'ran')!r}, 'w')\n" + TRAINING
        finished = estimate(agent, tmp_path, text)
        assert finished["outcome"] == "exited"
        assert "cannot be confined" in finished["message"]
        assert not (tmp_path / "ran").exists()
        # Who allows it gets one, which is confined all the same where that can be.
        (tmp_path / "notes.txt").write_bytes(b"kept")
        text = 'attempt("write", lambda: write("notes.txt"))\n'
        assert "write: refused" in attempted(agent, tmp_path, text, without_sandbox=True)


def test_the_level_is_reported(agent: Agent) -> None:
    level = agent.ready["sandbox"]
    assert level["holds"] is True
    assert level["why"] is None
    assert level["landlock"] >= 1
    assert level["seccomp"] is True
