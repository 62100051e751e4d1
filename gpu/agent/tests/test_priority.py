"""Work that nobody waits for gives way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_TOLD = """
import os
from ridgeline_agent.system import priority
priority.set_low_priority()
child = os.fork()
if child == 0:
    nice, policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    print(nice, policy == os.SCHED_BATCH, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other means")
def test_what_gives_way_is_nice_and_a_batch_job_with_its_children() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _TOLD],
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["19", "True"]
