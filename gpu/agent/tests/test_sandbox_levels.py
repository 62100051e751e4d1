"""The sandbox with older Landlock versions, where the seccomp filter denies more."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_driver import is_alive
from ridgeline_agent.protocol.spec import RunSpec
from ridgeline_agent.sandbox import confinement, privileges, seccomp
from ridgeline_agent.system import kernel_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

LEVELS = range(1, confinement.level().landlock + 1)


def in_child(action: Callable[[], None]) -> None:
    """Runs the action in a forked process, and fails if it raises or prints something."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        output = ""
        try:
            os.dup2(writer, 1)
            action()
        except BaseException:
            output = traceback.format_exc()
        os.write(1, output.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    assert (output, status) == ("", 0)


def confine(out: Path, level: int) -> None:
    out.mkdir(exist_ok=True)
    confinement.confine_to(str(out), level, reads_root=False, on_gpu=False, kept=[])


def check_refused(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        # EXDEV: the file cannot be linked or moved to another folder.
        assert error.errno in (errno.EACCES, errno.EPERM, errno.EXDEV, errno.ENOSYS), error
    else:
        raise AssertionError("the action was not refused")


@pytest.mark.parametrize("level", LEVELS)
def test_files(tmp_path: Path, level: int) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("kept")
    out = tmp_path / "out"

    def attempt() -> None:
        confine(out, level)
        assert kept.read_text() == "kept"
        check_refused(lambda: kept.write_text("changed"))
        check_refused(lambda: os.truncate(kept, 0))
        check_refused(lambda: os.open(kept, os.O_RDONLY | os.O_TRUNC))
        check_refused(lambda: os.open(kept, os.O_TRUNC | 3))
        check_refused(lambda: os.rename(kept, tmp_path / "moved"))
        check_refused(lambda: os.rename(kept, out / "moved"))
        check_refused(lambda: os.link(kept, out / "linked"))
        check_refused(lambda: os.unlink(kept))
        check_refused(lambda: os.symlink(kept, out / "link"))
        check_refused(lambda: os.mkfifo(out / "pipe"))
        kept.chmod(0)
        (out / "folder").mkdir()
        (out / "a.txt").write_text("own")
        with open(out / "a.txt", "r+") as file:
            file.truncate(1)
        os.replace(out / "a.txt", out / "b.txt")
        assert (out / "b.txt").read_text() == "o"
        (out / "b.txt").unlink()

    mode = kept.stat().st_mode
    in_child(attempt)
    assert (kept.read_text(), kept.stat().st_mode) == ("kept", mode)


@pytest.mark.parametrize("level", LEVELS)
def test_signals(tmp_path: Path, level: int) -> None:
    other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])

    def attempt() -> None:
        confine(tmp_path / "out", level)
        check_refused(lambda: os.kill(other.pid, signal.SIGKILL))
        check_refused(lambda: signal.pidfd_send_signal(os.pidfd_open(other.pid), signal.SIGKILL))
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(reader, fcntl.F_SETOWN, other.pid)
            fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            os.write(writer, b"x")  # Sends SIGIO.
        except PermissionError:
            pass
        received: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert received == [signal.SIGUSR1] * 2

    try:
        in_child(attempt)
        assert is_alive(other.pid)
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("level", LEVELS)
def test_sockets(tmp_path: Path, level: int) -> None:
    def attempt() -> None:
        confine(tmp_path / "out", level)
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
            check_refused(lambda family=family: socket.socket(family, socket.SOCK_DGRAM))
        check_refused(lambda: socket.socketpair(type=socket.SOCK_DGRAM))
        one, other = socket.socketpair()
        one.send(b"x")
        assert other.recv(2) == b"x"

    in_child(attempt)


def test_x32_system_calls_kill_the_process(tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only x86-64 has the x32 ABI")
    child = os.fork()
    if child == 0:
        confine(tmp_path / "out", LEVELS[-1])
        ctypes.CDLL(None).syscall(0x40000000 + 39)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGSYS


def test_existing_threads(tmp_path: Path) -> None:
    def attempt() -> None:
        import threading

        threading.Thread(target=threading.Event().wait, daemon=True).start()
        with pytest.raises(confinement.NotConfinedError, match="2 threads"):
            confine(tmp_path / "out", LEVELS[-1])

    in_child(attempt)


def test_kernel_without_landlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(kernel_calls, "landlock_create_ruleset", missing)
    level = confinement.level()
    assert (level.landlock, level.holds) == (0, False)
    assert "does not support Landlock" in str(level.why)
    check_confinement_is_required(tmp_path)


def test_kernel_without_seccomp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "is_available", lambda: False)
    level = confinement.level()
    assert (level.seccomp, level.holds) == (False, False)
    assert "seccomp" in str(level.why)
    check_confinement_is_required(tmp_path)


def check_confinement_is_required(tmp_path: Path) -> None:
    request = {"op": "estimate", "id": 1, "out": str(tmp_path), "root": str(tmp_path)}
    request["entry"] = {"kind": "script", "path": str(tmp_path / "train.py")}

    def attempt() -> None:
        with pytest.raises(confinement.NotConfinedError):
            confinement.confine(RunSpec.from_json(request), [])
        allowed = RunSpec.from_json({**request, "without_sandbox": True})
        assert confinement.confine(allowed, []) is False

    in_child(attempt)


def test_unprivileged_user(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests cover this")
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        kept, out = Path(folder, "kept.txt"), Path(folder, "out")
        kept.write_text("kept")
        out.mkdir()
        for path in (Path(folder), kept, out):
            os.chown(path, nobody, nobody)

        # Import these modules now: they may lie in root's home folder.
        assert resource and privileges

        def attempt() -> None:
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)
            confine(out, LEVELS[-1])
            check_refused(lambda: kept.write_text("changed"))
            check_refused(lambda: kept.unlink())
            (out / "own").write_text("own")
            kept.chmod(0)
            children = []
            with pytest.raises(BlockingIOError):
                while len(children) < 5000:
                    # Unlike a fork, this does not copy the page tables of this large process.
                    children.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}))
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

        in_child(attempt)
        assert kept.read_text() == "kept"
        assert kept.stat().st_mode & 0o777 == 0o644
