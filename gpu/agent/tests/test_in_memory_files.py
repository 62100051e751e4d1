"""The memory limit includes in-memory files, which are not part of any resident set size."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_driver import Agent
from estimate_helpers import estimate

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the agent limits memory only on Linux"
)

PREAMBLE = "import os, time\n"
LIMIT_BYTES = 600 * 2**20
WRITE_BEYOND_LIMIT = f"""
pieces = {LIMIT_BYTES // (200 * 2**20) + 1}
for number in range(pieces):
    file = open_file(number)
    for _ in range(200):
        os.write(file, bytes(2**20))
while True:
    time.sleep(0.1)
"""


def test_memory_of_memfd_files(agent: Agent, tmp_path: Path) -> None:
    text = "open_file = lambda number: os.memfd_create(str(number))\n"
    limits = {"seconds": 30, "memory_bytes": LIMIT_BYTES}
    finished = estimate(agent, tmp_path, PREAMBLE + text + WRITE_BEYOND_LIMIT, limits=limits)
    assert finished["outcome"] == "memory", finished


def test_memory_of_tmpfs_files(agent: Agent, tmp_path: Path) -> None:
    # Runs are not sandboxed, but their memory is limited too.
    name = f"/dev/shm/ridgeline-test-{os.getpid()}"
    text = f"""
def open_file(number):
    if number:
        os.close(file)
    return os.open(f"{name}-{{number}}", os.O_WRONLY | os.O_CREAT)
"""
    limits = {"seconds": 30, "memory_bytes": LIMIT_BYTES}
    try:
        finished = agent.run(tmp_path, PREAMBLE + text + WRITE_BEYOND_LIMIT, limits=limits)
    finally:
        for path in Path("/dev/shm").glob(f"ridgeline-test-{os.getpid()}*"):
            path.unlink()
    assert finished["outcome"] == "memory", finished
