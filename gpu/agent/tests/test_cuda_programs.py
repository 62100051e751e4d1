"""Runs the GPU programs in tests/gpu/programs with a real agent.

The expected results are in `expectations.json` in the same folder. Without a GPU, use the simulated
device: `tests/gpu/simulated/run pytest …`.
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
# Compiles for a while, and has a test of its own.
SLOW = ("compile_reduce_overhead.py",)
MARK = "# the training loop"
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
ITERATIONS = {"warmup": 2, "timed": 3, "profiled": 2}
LAUNCHES = re.compile(r"Launch.*Kernel|Memcpy|Memset")


class GpuRecording:
    """The recording of a run."""

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
        """The CUDA runtime and driver calls that started between two times."""
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


def run(agent: Agent, folder: Path, program: str, **env: str) -> GpuRecording:
    finished = agent.run(folder, (PROGRAMS / program).read_text(), iterations=ITERATIONS, env=env)
    assert finished["outcome"] == "complete", finished
    return GpuRecording(folder)


def check_iterations(recorded: GpuRecording, note: str | None = None) -> None:
    """Checks that the marked loop was found, that all kernels of an iteration lie in its window,
    and that all notes contain `note`.
    """
    result = recorded.manifest
    assert result["device"]["kind"] == "cuda"
    assert result["iterations"]["found_by"] == "optimizer"
    assert result["iterations"]["steps_per_iteration"] == 1
    assert [text for text in result["notes"] if note is None or note not in text] == []
    lines = recorded.text.splitlines()
    assert MARK in lines[result["loop"]["line"] - 1]
    windows = recorded.windows()
    assert len(windows) == ITERATIONS["profiled"]
    for start, end in windows:
        launched = {call["args"].get("correlation") for call in recorded.calls(start, end)}
        activities = [
            activity
            for activity in recorded.activities()
            if activity["args"]["correlation"] in launched
        ]
        assert activities
        assert all(start <= event["start"] and event["end"] <= end for event in activities)


@pytest.mark.parametrize("program", [name for name in EXPECTATIONS if name not in SLOW])
def test_profiles_training_loop_of_program(agent: Agent, tmp_path: Path, program: str) -> None:
    expected = EXPECTATIONS[program]
    if expected.get("devices", 1) > device_count():
        pytest.skip("needs two GPUs; SIMGPU_COUNT=2 for the simulated device")
    recorded = run(agent, tmp_path, program)
    check_iterations(recorded, expected.get("notes"))
    for window in recorded.windows():
        assert len(recorded.replays_of(window)) == expected.get("replays", 0)
    assert len(recorded.manifest["cuda_graphs"]["captures"]) == expected.get("captures", 0)
    streams = {activity["args"]["stream"] for activity in recorded.activities()}
    assert len(streams) >= expected.get("streams", 1)


@pytest.mark.parametrize("warm_up", ["5", "8", "11"])
def test_warm_up_before_capture_is_not_training(agent: Agent, tmp_path: Path, warm_up: str) -> None:
    # The capture starts in a different stage of the recorder for each value. The default is 3.
    recorded = run(agent, tmp_path, "cuda_graph_whole_step.py", WARM_UP=warm_up)
    check_iterations(recorded)
    assert recorded.manifest["iterations"]["signals"] == {
        "optimizer": recorded.manifest["iterations"]["seen"]
    }
    assert all(len(recorded.replays_of(window)) == 1 for window in recorded.windows())


def test_capture_has_a_launch_for_each_replayed_node(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "cuda_graph_whole_step.py")
    graphs = recorded.manifest["cuda_graphs"]
    captured = [
        call for call in recorded.calls(*graphs["captures"][0]) if LAUNCHES.search(call["name"])
    ]
    launch = next(
        call
        for call in recorded.calls(*recorded.windows()[0])
        if call["name"].startswith("cudaGraphLaunch")
    )
    correlation = launch["args"]["correlation"]
    nodes = [node for node in recorded.activities() if node["args"]["correlation"] == correlation]
    assert len(nodes) == len(captured) > 10


def test_compiler_graphs_are_launched_in_training_loop(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "compile_reduce_overhead.py")
    check_iterations(recorded)
    assert recorded.manifest["cuda_graphs"]["replays"] == []
    for window in recorded.windows():
        launches = [call for call in recorded.calls(*window) if "GraphLaunch" in call["name"]]
        assert len(launches) == 2


def test_second_run_of_same_agent_matches_first(agent: Agent, tmp_path: Path) -> None:
    recordings = [run(agent, tmp_path, "cuda_graph_partial.py") for _ in range(2)]
    for recorded in recordings:
        check_iterations(recorded)
    first, second = (len(recorded.activities()) for recorded in recordings)
    assert first == second


@pytest.mark.parametrize("mode", ["--standby", "--cuda"])
def test_profiles_in_other_agent_modes(tmp_path: Path, mode: str) -> None:
    with Agent(mode) as agent:
        check_iterations(run(agent, tmp_path, "cuda_graph_partial.py"))


WITHOUT_KINETO = """\
import torch
import torch.autograd.profiler as profiler
original_init = profiler.profile.__init__
def without_kineto(self, *args, **options):
    original_init(self, *args, **{**options, "use_kineto": False})
profiler.profile.__init__ = without_kineto
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_profile_without_kernels_reports_reason(agent: Agent, tmp_path: Path) -> None:
    finished = agent.run(tmp_path, WITHOUT_KINETO, iterations=ITERATIONS)
    assert finished["outcome"] == "complete"
    assert "CUPTI" in manifest(tmp_path)["kernels_missing"]


def test_profile_with_kernels(agent: Agent, tmp_path: Path) -> None:
    recorded = run(agent, tmp_path, "amp_grad_scaler.py")
    assert recorded.manifest["kernels_missing"] is None
    assert any(event["cat"] == "kernel" for event in recorded.activities())


VISIBLE = "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n"


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        ("1,0", "auto", "1,0"),
        ("1,0", "cuda:1", "0"),
        (" 0 , 1 ", "cuda:0", "0"),
        # CUDA ignores -1 and everything after it.
        ("0,-1,1", "cuda:0", "0"),
        ("0,-1,1", "cuda:1", None),
        ("0", "cuda:1", None),
        # No device is visible, unlike when the variable is unset.
        ("", "cuda:0", None),
    ],
)
def test_device_index_is_relative_to_visible_devices(
    agent: Agent, tmp_path: Path, visible: str, device: str, expected: str | None
) -> None:
    env = {"CUDA_VISIBLE_DEVICES": visible}
    finished = agent.run(tmp_path, VISIBLE, device=device, env=env)
    if expected is None:
        assert finished["outcome"] == "exited"
        assert device in finished["message"]
    else:
        assert log(tmp_path).decode().strip() == expected
