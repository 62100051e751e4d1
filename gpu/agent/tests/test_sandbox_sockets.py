"""Hostile programs that open network connections or other sockets."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_driver import Agent
from sandbox_helpers import run_attempts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def test_datagrams(agent: Agent, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.5)
        printed = run_attempts(
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
            assert f"{name}: refused" in printed, printed
        with pytest.raises(socket.timeout):
            listener.recv(10)


def test_torch_distributed_store(agent: Agent, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.5)
        printed = run_attempts(
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
        assert "store: refused" in printed
        assert "listening: refused" in printed
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
        for listener in (by_path, abstract, datagrams):
            listener.settimeout(0.3)
        printed = run_attempts(
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
            assert f"{what}: refused" in printed, printed
        assert "pair: b'fine'" in printed
        assert "pair: refused" in printed
        for listener in (by_path, abstract):
            with pytest.raises(socket.timeout):
                listener.accept()
        with pytest.raises(socket.timeout):
            datagrams.recv(1)
