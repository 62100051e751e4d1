"""Launched runs: torchrun and other launchers of two ranks with gloo on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from agent_driver import BOOT, TIMEOUT_SECONDS, Agent, all_exit, log, manifest
from agent_driver import TRAINING as SINGLE_PROCESS_TRAINING
from launch_helpers import (
    ALL_REDUCE_LINE,
    BACKWARD_LINE,
    FORKED,
    HOOK_LINE,
    ITERATIONS,
    TRAINING,
    check_recordings,
    manifest_of,
    run,
    start,
)
from ridgeline_agent.system.process_tree import descendants


def test_every_rank_is_recorded(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path)
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    check_recordings(tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")
def test_ranks_share_redirected_writes(launch_agent: Agent, tmp_path: Path) -> None:
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_text("trained weights")
    text = TRAINING.replace("{step_hook}", "pass").replace(
        "def step_hook",
        """\
if rank == 0:
    with open("model.pt", "w") as file:
        file.write("new weights")
dist.barrier()
assert open("model.pt").read() == "new weights"
def step_hook""",
    )
    (tmp_path / "out").mkdir()
    request = {"launcher": FORKED, "iterations": ITERATIONS, "side_effects": "redirect"}
    finished = launch_agent.wait_for("finished", id=launch_agent.start(tmp_path, text, **request))
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    assert checkpoint.read_text() == "trained weights"
    side_effects = finished["side_effects"]
    assert side_effects["held_by"] == "kernel"
    changes = [(change["path"], change["change"]) for change in side_effects["changes"]]
    assert changes == [("model.pt", "changed")]
    check_recordings(tmp_path)


# Simulated iteration times of rank 0, which alternate between 10 ms and 20 ms.
ONE_RANK_HAS_VARYING_TIMES = """\
if rank == 0 and step == 0:
        from ridgeline_agent.record.timing import Timer
        end = Timer.end
        def end_with_simulated_time(timer, now_ns):
            end(timer, now_ns)
            timer.host_ns[-1] = (timer.count % 2 + 1) * 10**7
        Timer.end = end_with_simulated_time
"""
# A new tensor size triggers a recompilation, in one rank only.
ONE_RANK_RECOMPILES = (
    "globals().setdefault('plus', torch.compile(lambda x: x + 1, backend='eager', dynamic=False))"
    "(torch.ones(2 + rank * (step > 3)))"
)


# The other rank does not compile anything.
ONLY_ONE_RANK_COMPILES = f"rank == 0 and {ONE_RANK_RECOMPILES.replace('rank * ', '')}"


@pytest.mark.parametrize(
    "step_hook",
    [ONE_RANK_HAS_VARYING_TIMES, ONE_RANK_RECOMPILES, ONLY_ONE_RANK_COMPILES],
    ids=["varying times", "recompiles", "compiles"],
)
def test_ranks_run_the_same_extra_iterations(
    launch_agent: Agent, tmp_path: Path, step_hook: str
) -> None:
    # Only one rank needs extra iterations, but both must run them because of their collectives.
    iterations = {"warmup": 1, "timed": 6, "profiled": 1}
    finished = run(launch_agent, tmp_path, step_hook, iterations=iterations, launcher=FORKED)
    assert finished["outcome"] == "complete", finished
    counts = [manifest_of(tmp_path, rank)["iterations"]["seen"] for rank in (0, 1)]
    assert counts[0] == counts[1]
    assert counts[0] > 1 + 6 + 1, "no extra iterations were run"
    notes = [note for rank in (0, 1) for note in manifest_of(tmp_path, rank)["notes"]]
    assert not [note for note in notes if "other ranks" in note], notes


def test_rank_that_raises(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, "rank == 1 and step == 2 and [][1]")
    assert finished["outcome"] == "failed", (finished, log(tmp_path)[-2000:])
    assert finished["message"].startswith("rank 1: IndexError")
    # The server reads the manifest of the rank that failed.
    assert manifest(tmp_path)["failure"]["frames"][-1]["line"] == HOOK_LINE


def test_all_ranks_that_raise(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, "[][1]", launcher=FORKED)
    assert finished["outcome"] == "failed"
    assert (
        finished["message"]
        == "rank 0: IndexError: list index out of range (1 more rank failed, too)"
    )


def test_rank_that_exits(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, "rank == 1 and step == 2 and os._exit(7)")
    assert finished["outcome"] == "exited", (finished, log(tmp_path)[-2000:])
    # torch then terminates rank 0, so that both are gone.
    assert "rank 1 was stopped in stage" in finished["message"]


# Starts the agent with a short timeout for the remaining ranks after one has finished.
SHORT_TIMEOUT_PYTHON = """\
#!{python}
import runpy, sys
sys.argv[:] = [word for word in sys.argv[1:] if word != "-u"]
sys.path.insert(0, {agent!r})
from ridgeline_agent.launch import rank_group
rank_group._AFTER_END_SECONDS = 2.0
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_rank_that_finishes_early(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(SHORT_TIMEOUT_PYTHON.format(python=sys.executable, agent=str(BOOT.parent)))
    python.chmod(0o755)
    with Agent("--launch", python=str(python)) as agent:
        exit_early = "rank == 1 and step == 2 and sys.exit()"
        finished = run(agent, tmp_path, exit_early, launcher=FORKED)
    # With fewer iterations, both ranks might finish.
    assert finished["outcome"] == "short", (finished, log(tmp_path)[-2000:])
    assert "rank 1 finished before enough iterations ran" in finished["message"]


def test_rank_that_hangs(launch_agent: Agent, tmp_path: Path) -> None:
    # Four times the duration of a full run is enough to reach the line that hangs.
    start_time = time.monotonic()
    assert run(launch_agent, tmp_path, launcher=FORKED)["outcome"] == "complete"
    limits = {"seconds": 4 * (time.monotonic() - start_time)}
    keys = {"launcher": FORKED, "limits": limits}
    finished = run(launch_agent, tmp_path, "rank == 1 and step == 2 and time.sleep(600)", **keys)
    assert finished["outcome"] == "timeout", (finished, log(tmp_path)[-2000:])
    assert f"rank 1 was at train.py:{HOOK_LINE} in step_hook" in finished["message"]
    # In the all-reduce, or before it while waiting for the other rank to start profiling.
    places = [
        f"rank 0 was at train.py:{line} in train" for line in (BACKWARD_LINE, ALL_REDUCE_LINE)
    ]
    assert any(place in finished["message"] for place in places), finished["message"]


def test_too_few_iterations_on_all_ranks(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, "step == 2 and sys.exit()", launcher=FORKED)
    assert finished["outcome"] == "short", (finished, log(tmp_path)[-2000:])
    assert manifest(tmp_path)["iterations"]["seen"] == 2


def test_memory_limit_applies_to_all_ranks_together(launch_agent: Agent, tmp_path: Path) -> None:
    limits = {"seconds": TIMEOUT_SECONDS, "memory_bytes": 2 * 2**30}
    keys = {"launcher": FORKED, "limits": limits}
    allocate = "rank == 1 and step == 1 and (bytearray(3 * 2**30), time.sleep(600))"
    finished = run(launch_agent, tmp_path, allocate, **keys)
    assert finished["outcome"] == "memory", (finished, log(tmp_path)[-2000:])


def test_launcher_that_does_not_exist(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, launcher={"command": ["no-such-launcher", "-n", "2"]})
    assert finished["outcome"] == "exited"
    assert "no-such-launcher could not be started" in finished["message"]


def test_launcher_that_starts_no_rank(launch_agent: Agent, tmp_path: Path) -> None:
    finished = run(launch_agent, tmp_path, launcher={"command": ["sh", "-c", "echo no; exit 3"]})
    assert finished["outcome"] == "exited"
    assert finished["message"] == "no rank started: the launcher exited with exit code 3: no"
    assert log(tmp_path) == b"no\n"


def test_launcher_that_runs_a_command(launch_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    launcher = {"command": ["env", "RANK=0", "WORLD_SIZE=1"]}
    text = SINGLE_PROCESS_TRAINING + "train(1000)\n"
    identifier = launch_agent.start(tmp_path, text, launcher=launcher, iterations=ITERATIONS)
    finished = launch_agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    assert not (tmp_path / "out" / "rank-1").exists()


def wait_for_ranks(folder: Path, launch_agent: Agent) -> list[int]:
    """Waits until both ranks are running and returns all processes of the run."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while len(list((folder / "out").glob("ranks/*.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    return descendants(launch_agent.process.pid)


def test_cancel_terminates_all_ranks(launch_agent: Agent, tmp_path: Path) -> None:
    identifier = start(launch_agent, tmp_path, "time.sleep(600)")
    processes = wait_for_ranks(tmp_path, launch_agent)
    launch_agent.send({"op": "cancel", "id": identifier})
    assert launch_agent.wait_for("finished", id=identifier)["outcome"] == "cancelled"
    assert len(processes) >= 3 and all_exit(processes)


def test_end_of_input_terminates_all_ranks(launch_agent: Agent, tmp_path: Path) -> None:
    start(launch_agent, tmp_path, "time.sleep(600)", launcher=FORKED)
    processes = wait_for_ranks(tmp_path, launch_agent)
    launch_agent.close()
    assert len(processes) >= 3 and all_exit(processes)


def test_single_iteration_with_multiple_ranks(launch_agent: Agent, tmp_path: Path) -> None:
    # Timed in one run and profiled in another. Each rank reads its own times.
    text = TRAINING.replace("{step_hook}", "pass").replace("train(1000)", "train(1)")
    hints = {"found_by": "backward", "signals": {"first": 0, "every": 1}}
    (tmp_path / "out").mkdir()
    out, first = str(tmp_path / "out"), str(tmp_path / "out" / "run-1")
    os.mkdir(first)
    request = {"launcher": FORKED, "side_effects": "redirect"}
    for folder, timed, profiled, earlier in ((first, 1, 0, []), (out, 0, 1, [first])):
        iterations = {"warmup": 0, "timed": timed, "profiled": profiled, **hints}
        request = {**request, "out": folder, "iterations": iterations, "earlier": earlier}
        finished = launch_agent.wait_for(
            "finished", id=launch_agent.start(tmp_path, text, **request)
        )
        assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    for rank in (0, 1):
        result = manifest_of(tmp_path, rank)
        timed_ns = json.loads(
            (tmp_path / "out/run-1" / ("rank-1" if rank else ".") / "manifest.json").read_text()
        )["iterations"]["timed_ns"]
        assert result["iterations"]["timed_ns"] == timed_ns and len(timed_ns) == 1
        assert len(result["iterations"]["profiled"]) == 1 and result["iterations"]["runs"] == 2
