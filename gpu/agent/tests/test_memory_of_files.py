"""Memory that is in no process's resident size counts as well: files that take no disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_driver import Agent
from test_estimate import estimate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is looked at on Linux")

PREAMBLE = "import os, time\n"
LIMIT_BYTES = 600 * 2**20
WRITES_MORE = f"""
pieces = {LIMIT_BYTES // (200 * 2**20) + 1}
for number in range(pieces):
    file = place(number)
    for _ in range(200):
        os.write(file, bytes(2**20))
while True:
    time.sleep(0.1)
"""


def test_memory_of_files_without_a_name(agent: Agent, tmp_path: Path) -> None:
    text = "place = lambda number: os.memfd_create(str(number))\n"
    limits = {"seconds": 30, "memory_bytes": LIMIT_BYTES}
    finished = estimate(agent, tmp_path, PREAMBLE + text + WRITES_MORE, limits=limits)
    assert finished["outcome"] == "memory", finished


def test_memory_of_files_that_a_run_leaves_behind(agent: Agent, tmp_path: Path) -> None:
    """Runs are not confined, and a limit on memory holds for them as well."""
    name = f"/dev/shm/ridgeline-test-{os.getpid()}"
    text = f"""
def place(number):
    if number:
        os.close(file)
    return os.open(f"{name}-{{number}}", os.O_WRONLY | os.O_CREAT)
"""
    limits = {"seconds": 30, "memory_bytes": LIMIT_BYTES}
    try:
        finished = agent.run(tmp_path, PREAMBLE + text + WRITES_MORE, limits=limits)
    finally:
        for left in Path("/dev/shm").glob(f"ridgeline-test-{os.getpid()}*"):
            left.unlink()
    assert finished["outcome"] == "memory", finished
