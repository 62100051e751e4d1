"""One agent for all tests: starting one takes seconds, a run in it a fraction of one."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

import pytest

from agent_driver import Agent


@pytest.fixture(scope="session")
def agent() -> Iterator[Agent]:
    with Agent() as started:
        started.ready = started.wait_for("ready")
        yield started


@pytest.fixture(scope="session")
def standby() -> Iterator[Agent]:
    with Agent("--standby") as started:
        yield started


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "runs_operators: the test runs tensor operators itself")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test with the mark `runs_operators` in a child.

    Other tests fork programs from this process, as the zygote does, and autograd refuses to work in
    a child of a process in which it has worked.
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
        with os.fdopen(writer, "w") as told:
            told.write(failure)
        os._exit(1 if failure else 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        failure = told.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        pytest.fail(failure or f"the test's process ended with status {status}", pytrace=False)
    return True
