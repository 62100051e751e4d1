"""Priority of background work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PRINT_PRIORITY = """
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


@pytest.mark.skipif(sys.platform != "linux", reason="checks Linux scheduling policies")
def test_low_priority_applies_to_child_processes() -> None:
    process = subprocess.run(
        [sys.executable, "-c", _PRINT_PRIORITY],
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == ["19", "True"]
