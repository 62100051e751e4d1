"""Programs that use a GPU in many manners (tests/gpu/programs), run by the real agent.

What each should give is in `expectations.json` beside them. Without a GPU these run on the
simulated device: `tests/gpu/simulated/run pytest …`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, log, manifest
from cuda import device_count, needs_cuda

pytestmark = needs_cuda

PROGRAMS = Path(__file__).resolve().parents[3] / "tests" / "gpu" / "programs"
EXPECTATIONS: dict[str, dict[str, Any]] = json.loads((PROGRAMS / "expectations.json").read_text())
# Both take a while to compile or to start processes.
SLOW = ("compile_reduce_overhead.py",)
MARK = "# the training loop"
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
ITERATIONS = {"warmup": 2, "timed": 3, "profiled": 2}
LAUNCHES = re.compile(r"Launch.*Kernel|Memcpy|Memset")


class Recorded:
    """What a run left behind."""

    def __init__(self, folder: Path) -> None:
        self.manifest = manifest(folder)
        self.text = (folder / "train.py").read_text()
        trace = json.loads((folder / "out" / "trace.json").read_text())
        base = trace["baseTimeNanoseconds"]
        self.events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        for event in self.events:
            event["start"] = base + round(event["ts"] * 1000)
            event["end"] = event["start"] + round(event["dur"] * 1000)

    def activities(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("cat") in ACTIVITIES]

    def calls(self, start: int, end: int) -> list[dict[str, Any]]:
        """The runtime calls that began between two times."""
        kinds = ("cuda_runtime", "cuda_driver")
        return [
            event
            for event in self.events
            if event.get("cat") in kinds and start <= event["start"] < end
        ]

    def windows(self) -> list[list[int]]:
        windows: list[list[int]] = self.manifest["iterations"]["profiled"]
        return windows

    def replays_of(self, window: list[int]) -> list[list[Any]]:
        replays = self.manifest["cuda_graphs"]["replays"]
        return [replay for replay in replays if window[0] <= replay[0] < window[1]]


def run(agent: Agent, folder: Path, program: str, **env: str) -> Recorded:
    finished = agent.run(folder, (PROGRAMS / program).read_text(), iterations=ITERATIONS, env=env)
    assert finished["outcome"] == "complete", finished
    return Recorded(folder)


def check_iterations(recorded: Recorded, note: str | None = None) -> None:
    """The loop is the one that is marked, all of an iteration's kernels lie in its window, and
    there is no note but the one that holds `note`.
    """
    found = recorded.manifest
    assert found["device"]["kind"] == "cuda"
    assert found["iterations"]["found_by"] == "optimizer"
    assert found["iterations"]["steps_per_iteration"] == 1
    assert [one for one in found["notes"] if note is None or note not in one] == []
    lines = recorded.text.splitlines()
    assert MARK in lines[found["loop"]["line"] - 1]
    windows = recorded.windows()
    assert len(windows) == ITERATIONS["profiled"]
    for start, end in windows:
        launched = {call["args"].get("correlation") for call in recorded.calls(start, end)}
        of_window = [one for one in recorded.activities() if one["args"]["correlation"] in launched]
        assert of_window
        assert all(start <= one["start"] and one["end"] <= end for one in of_window)


@pytest.mark.parametrize("program", [one for one in EXPECTATIONS if one not in SLOW])
def test_a_program_is_profiled_in_its_own_loop(agent: Agent, tmp_path: Path, program: str) -> None:
    expected = EXPECTATIONS[program]
    if expected.get("devices", 1) > device_count():
        pytest.skip("needs two GPUs; SIMGPU_COUNT=2 for the simulated device")
    recorded = run(agent, tmp_path, program)
    check_iterations(recorded, expected.get("notes"))
    for window in recorded.windows():
        assert len(recorded.replays_of(window)) == expected.get("replays", 0)
    assert len(recorded.manifest["cuda_graphs"]["captures"]) == expected.get("captures", 0)
    streams = {one["args"]["stream"] for one in recorded.activities()}
    assert len(streams) >= expected.get("streams", 1)


@pytest.mark.parametrize("warm_up", ["5", "8", "11"])
def test_the_warm_up_of_a_capture_is_no_training(
    agent: Agent, tmp_path: Path, warm_up: str
) -> None:
    """Whichever stage the recorder was in when the capture began; three is the program's own."""
    recorded = run(agent, tmp_path, "cuda_graph_whole_step.py", WARM_UP=warm_up)
    check_iterations(recorded)
    assert recorded.manifest["iterations"]["signals"] == {
        "optimizer": recorded.manifest["iterations"]["seen"]
    }
    assert all(len(recorded.replays_of(window)) == 1 for window in recorded.windows())


def test_a_capture_has_a_launch_for_each_node_of_a_replay(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "cuda_graph_whole_step.py")
    graphs = recorded.manifest["cuda_graphs"]
    made = [
        call for call in recorded.calls(*graphs["captures"][0]) if LAUNCHES.search(call["name"])
    ]
    launch = next(
        call
        for call in recorded.calls(*recorded.windows()[0])
        if call["name"].startswith("cudaGraphLaunch")
    )
    correlation = launch["args"]["correlation"]
    nodes = [one for one in recorded.activities() if one["args"]["correlation"] == correlation]
    assert len(nodes) == len(made) > 10


def test_graphs_of_a_compiler_are_replayed_in_its_loop(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "compile_reduce_overhead.py")
    check_iterations(recorded)
    assert recorded.manifest["cuda_graphs"]["replays"] == []
    for window in recorded.windows():
        launches = [one for one in recorded.calls(*window) if "GraphLaunch" in one["name"]]
        assert len(launches) == 2


def test_a_second_run_of_the_same_agent_is_as_the_first(agent: Agent, tmp_path: Path) -> None:
    seen = [run(agent, tmp_path, "cuda_graph_partial.py") for _ in range(2)]
    for recorded in seen:
        check_iterations(recorded)
    first, second = (len(recorded.activities()) for recorded in seen)
    assert first == second


@pytest.mark.parametrize("mode", ["--standby", "--cuda"])
def test_other_modes_of_the_agent_profile_as_well(tmp_path: Path, mode: str) -> None:
    with Agent(mode) as agent:
        check_iterations(run(agent, tmp_path, "cuda_graph_partial.py"))


WITHOUT_KINETO = """\
import torch
import torch.autograd.profiler as profiler
make = profiler.profile.__init__
def without_kineto(self, *args, **options):
    make(self, *args, **{**options, "use_kineto": False})
profiler.profile.__init__ = without_kineto
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_profile_without_kernels_says_why(agent: Agent, tmp_path: Path) -> None:
    finished = agent.run(tmp_path, WITHOUT_KINETO, iterations=ITERATIONS)
    assert finished["outcome"] == "complete"
    assert "CUPTI" in manifest(tmp_path)["kernels_missing"]


def test_a_profile_with_kernels_misses_none(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "amp_grad_scaler.py")
    assert recorded.manifest["kernels_missing"] is None
    assert any(event["cat"] == "kernel" for event in recorded.activities())


VISIBLE = "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n"


@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [
        ("1,0", "auto", "1,0"),
        ("1,0", "cuda:1", "0"),
        (" 0 , 1 ", "cuda:0", "0"),
        # CUDA reads no further than -1.
        ("0,-1,1", "cuda:0", "0"),
        ("0,-1,1", "cuda:1", None),
        ("0", "cuda:1", None),
        # None is visible, which is not the same as a variable that is not set.
        ("", "cuda:0", None),
    ],
)
def test_a_device_is_counted_among_the_visible_ones(
    agent: Agent, tmp_path: Path, visible: str, device: str, seen: str | None
) -> None:
    env = {"CUDA_VISIBLE_DEVICES": visible}
    finished = agent.run(tmp_path, VISIBLE, device=device, env=env)
    if seen is None:
        assert finished["outcome"] == "exited"
        assert device in finished["message"]
    else:
        assert log(tmp_path).decode().strip() == seen
