"""Hostile programs that write files or hold locks on them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from agent_driver import TIMEOUT_SECONDS, Agent
from estimate_helpers import TRAINING
from sandbox_helpers import TOOLS, files, run_attempts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def test_sqlite_delete(agent: Agent, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "runs.db")
    database.execute("create table runs (id integer)")
    database.executemany("insert into runs values (?)", [(value,) for value in range(5)])
    database.commit()
    printed = run_attempts(
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
    # The program works on a copy.
    assert "delete: 0" in printed
    assert "delete past the patch: refused" in printed
    assert database.execute("select count(*) from runs").fetchone() == (5,)
    assert set(files(tmp_path)) == {"runs.db"}


def test_files_written_by_torch(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "kept.bin").write_bytes(b"\1" * 64)
    printed = run_attempts(
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
    assert "writer: refused" in printed
    assert "from_file: refused" in printed
    assert files(tmp_path) == {"kept.bin": b"\1" * 64}


def test_files_written_through_ctypes(agent: Agent, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_bytes(b"kept")
    (tmp_path / "folder").mkdir()
    os.utime(kept, (1e9, 1e9))
    kept.chmod(0o640)
    before = kept.stat()
    printed = run_attempts(
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
        assert f"\n{name}: refused" in "\n" + printed, (name, printed)
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
    printed = run_attempts(
        agent,
        tmp_path,
        f"""
attempt("through a link", lambda: write("here"))
attempt("new link", lambda: call(libc.symlink, {str(target)!r}.encode(), b"out/ops.json"))
attempt("through output folder", lambda: write("out/../target.txt"))
attempt("through /proc", lambda: write("/proc/self/cwd/target.txt"))
def reopened():
    descriptor = os.open("target.txt", os.O_RDONLY)
    write(f"/proc/self/fd/{{descriptor}}")
attempt("reopened", reopened)
""",
    )
    for name in (
        "through a link",
        "new link",
        "through output folder",
        "through /proc",
        "reopened",
    ):
        assert f"{name}: refused" in printed, printed
    assert files(tmp_path) == {"target.txt": b"kept", "here": b"kept"}


def test_shared_memory(agent: Agent, tmp_path: Path) -> None:
    name = f"ridgeline-test-{os.getpid()}"
    printed = run_attempts(
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
        assert f"{what}: refused" in printed, printed
    assert not list(Path("/dev/shm").glob(f"*{name}*"))


def test_inherited_file_descriptors(tmp_path: Path) -> None:
    # A preimported package of the project has opened a file and sockets before the estimate.
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
        printed = run_attempts(agent, project, text)
        assert "kept: /dev/null" in printed
    assert opened.read_text() == ""


def test_file_locks_do_not_block_others(agent: Agent, tmp_path: Path) -> None:
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
