"""One agent for each test module: starting one takes seconds, a run in it a fraction of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_driver import Agent


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with Agent() as started:
        started.wait_for("ready")
        yield started


@pytest.fixture(scope="module")
def standby() -> Iterator[Agent]:
    with Agent("--standby") as started:
        yield started
