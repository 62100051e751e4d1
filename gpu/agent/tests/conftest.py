"""Shared fixtures. Tests share an agent because starting one takes seconds."""

from __future__ import annotations

import os
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_driver import Agent

# Helpers with assertions of their own.
pytest.register_assert_rewrite(
    "estimate_helpers",
    "launch_helpers",
    "observed_helpers",
    "sandbox_helpers",
    "side_effect_helpers",
)

from side_effect_helpers import PROGRAM  # noqa: E402


@pytest.fixture(scope="session")
def agent() -> Iterator[Agent]:
    with Agent() as shared_agent:
        shared_agent.ready = shared_agent.wait_for("ready")
        yield shared_agent


@pytest.fixture(scope="session")
def standby() -> Iterator[Agent]:
    with Agent("--standby") as agent:
        yield agent


@pytest.fixture
def launch_agent() -> Iterator[Agent]:
    with Agent("--launch") as agent:
        yield agent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with files that runs with redirected writes must not change."""
    folder = tmp_path / "project"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "model.pt").write_bytes(b"trained weights")
    for name in ("by_libc.txt", "copied.txt", "spawned.txt", "removed.txt", "old_name.txt"):
        (folder / name).write_text("original\n")
    (folder / "untouched.txt").write_text("original\n")
    for name in ("old_folder", "tree"):
        (folder / name).mkdir()
        (folder / name / "inside.txt").write_text("original\n")
    table = sqlite3.connect(folder / "rows.db")
    table.execute("create table rows (value)")
    table.executemany("insert into rows values (?)", [(value,) for value in range(5)])
    table.commit()
    table.close()
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder outside of the project."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "runs.log").write_text("a run\n")
    return folder


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "runs_operators: the test itself runs tensor operators")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests marked `runs_operators` in a forked child process.

    Other tests fork programs from this process, as the zygote does, and autograd does not work in
    a fork of a process that has already used it.
    """
    if pyfuncitem.get_closest_marker("runs_operators") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        failure = ""
        try:
            pyfuncitem.obj(**arguments)
        except BaseException:
            failure = traceback.format_exc()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(failure)
        os._exit(1 if failure else 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        failure = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        pytest.fail(failure or f"the test process exited with status {status}", pytrace=False)
    return True
