"""Recorded data loaders, settings, machine properties and activation sparsity."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from recording import record
from ridgeline_agent.record.manifest import write_manifest
from ridgeline_agent.record.patches.loaders import LoaderTimes
from ridgeline_agent.record.settings import has_native_bfloat16, usable_cores
from ridgeline_agent.record.sparsity import Sparsity

PROGRAM = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    class Data(Dataset):
        def __len__(self):
            return 80
        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.randn(4)
    loader = DataLoader(Data(), batch_size=4)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.5, 0.9))
    torch.set_float32_matmul_precision("high")
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
            loss = model(batch).sum()
        loss.backward()
        optimizer.step()
"""


def complete_manifest(program: str = PROGRAM, **request: Any) -> dict[str, Any]:
    recording = record(program, **request)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["notes"] == []
    return recording.manifest


def test_loader_and_autocast() -> None:
    recording = record(PROGRAM)
    result = recording.manifest
    assert recording.outcome == "complete" and result["notes"] == []
    (loader,) = result["loaders"]
    fetches = loader.pop("fetch_ns")
    slept_ns = len(fetches) * 4 * 2e6
    assert 0 < loader.pop("fetch_cpu_ns") <= sum(fetches) - slept_ns, "sleeping takes no CPU time"
    (first_batch,) = loader.pop("first_batch_ns")
    assert len(fetches) == len(result["iterations"]["timed_ns"])
    assert all(fetch_ns >= 4 * 2e6 for fetch_ns in fetches), "four samples of 2 ms each"
    assert loader == {
        "workers": 0,
        "pin_memory": False,
        "persistent": False,
        "prefetch_factor": None,
        "batch_size": 4,
        "at": {"file": 0, "line": recording.line_of("loader = DataLoader")},
        "passes": 1,
        "end_ns": [],
        "distinct_shapes": 1,
        "worker_load_ns": None,
    }
    assert first_batch >= 4 * 2e6
    settings = result["settings"]
    assert settings["autocast"] == ["bfloat16"]
    assert settings["matmul_precision"] == "high"
    assert settings["anomaly"] is False and settings["deterministic"] is False
    (sparse,) = result["sparsity"]
    assert result["modules"][sparse["module"]]["type"] == "ReLU"
    assert 0.2 < sparse["zeros"] < 0.8
    (optimizer,) = result["optimizers"]
    assert optimizer["options"]["betas"] == [0.5, 0.9] and optimizer["options"]["lr"] == 0.001
    assert "params" not in optimizer["options"]
    assert result["machine"]["cores"] >= 1


def test_loader_workers() -> None:
    program = PROGRAM.replace("batch_size=4", "batch_size=4, num_workers=1, prefetch_factor=3")
    (loader,) = complete_manifest(program)["loaders"]
    assert (loader["workers"], loader["prefetch_factor"]) == (1, 3)
    assert len(loader["fetch_ns"]) > 0
    if multiprocessing.get_all_start_methods()[0] == "fork":
        assert loader["worker_load_ns"] >= 4 * 2e6, "four samples of 2 ms each"
    else:
        assert loader["worker_load_ns"] is None


def test_program_without_loader_autocast_and_modules() -> None:
    program = """
        import torch
        x = torch.ones(4, requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=0.1)
        for _ in range(20):
            (x * x).sum().backward()
            optimizer.step()
    """
    result = complete_manifest(program)
    assert result["loaders"] == [] and result["sparsity"] == []
    assert result["settings"]["autocast"] == []


@pytest.mark.parametrize("within", ["loss = model(x).sum()", "loss.backward()"])
def test_anomaly_detection_in_part_of_iteration(within: str) -> None:
    program = """
        import torch
        x, model = torch.ones(4), torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
    """
    assert complete_manifest(program)["settings"]["anomaly"] is False
    program = program.replace(within, f"with torch.autograd.detect_anomaly(): {within}")
    assert complete_manifest(program)["settings"]["anomaly"] is True


def test_sparsity_is_not_counted_under_vmap() -> None:
    result = complete_manifest("""
        import torch
        from torch.func import functional_call, vmap
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = dict(model.named_parameters())
        x = torch.randn(5, 3, 4)
        while True:
            optimizer.zero_grad()
            vmap(lambda x: functional_call(model, weights, (x,)).sum())(x).sum().backward()
            optimizer.step()
    """)
    assert result["sparsity"] == []


def test_model_is_traced_before_training() -> None:
    # As by SummaryWriter.add_graph.
    result = complete_manifest("""
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(5, 4)
        graph = torch.jit.trace(model, x).inlined_graph
        assert "count_nonzero" not in str(graph), graph
        while True:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """)
    assert result["batch"]["size"] == 5
    (sparse,) = result["sparsity"]
    assert 0 < sparse["zeros"] < 1


def test_values_that_are_not_json_are_missing(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), {"zeros": torch.tensor(1), "batch": 5, "notes": []})
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert written["zeros"] is None and written["batch"] == 5
    assert "values of type Tensor are missing" in written["notes"][0]


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("class Mine(torch.optim.AdamW):\n        pass", "AdamW"),
        ("class Adam(torch.optim.Adam):\n        pass\n    Mine = Adam", "Adam"),
        ("class Lion(torch.optim.Optimizer):\n        {step}\n    Mine = Lion", "Lion"),
        ("class Adam(torch.optim.Optimizer):\n        {step}\n    Mine = Adam", "__main__.Adam"),
        ("class Mine(torch.optim.SGD):\n        {step}", "Mine"),
    ],
)
def test_optimizer_is_named_after_its_step(declared: str, name: str) -> None:
    step = "def step(self): self.param_groups[0]['params'][0].data.add_(1)"
    init = "def __init__(self, p, lr): super().__init__(p, {'lr': lr})"
    methods = f"{step}\n        {init}" if "Optimizer)" in declared else step
    program = f"""
    import torch
    {declared.replace("{step}", methods)}
    x = torch.ones(4, requires_grad=True)
    optimizer = Mine([x], lr=0.1)
    for _ in range(20):
        (x * x).sum().backward()
        optimizer.step()
    """
    assert [optimizer["type"] for optimizer in complete_manifest(program)["optimizers"]] == [name]


def test_sparsity_is_not_counted_without_warm_up() -> None:
    recording = record(PROGRAM, iterations={"warmup": 0, "timed": 2, "profiled": 2})
    assert recording.manifest["sparsity"] == []


def test_forget_times() -> None:
    times = LoaderTimes()
    times.begins()
    times.ends()
    times.loaded(object(), timed=True)
    assert len(times.json()[0]["fetch_ns"]) == 1
    times.forget_times()
    assert times.json()[0]["fetch_ns"] == []


@pytest.mark.runs_operators
def test_sparsity_of_large_output_is_sampled() -> None:
    sparsity = Sparsity()
    output = torch.zeros(1 << 12, 1 << 10)
    output[: 1 << 9] = 1
    sparsity.gave(nn.ReLU(), output)
    sparsity.settle()
    ((_, zeros, elements),) = sparsity.sums()
    # Only the first quarter of the 2^22 elements is counted. Half of them are ones.
    assert (zeros, elements) == (1 << 19, 1 << 20)


@pytest.mark.runs_operators
def test_sparsity_sums_over_calls() -> None:
    sparsity, module = Sparsity(), nn.ReLU()
    sparsity.gave(module, torch.zeros(2, 8))
    sparsity.gave(module, torch.ones(6, 8))
    sparsity.settle()
    assert sparsity.sums() == [(module, 16, 64)]


@pytest.mark.runs_operators
@pytest.mark.parametrize("output", [None, (), torch.tensor(1.0), torch.ones(0)])
def test_sparsity_ignores_other_outputs(output: object) -> None:
    sparsity = Sparsity()
    sparsity.gave(nn.ReLU(), output)
    sparsity.settle()
    assert sparsity.sums() == []


def test_cpu_properties() -> None:
    assert (usable_cores() or 0) >= 1
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = cpuinfo.read_text()
        native = "avx512_bf16" in flags or "amx_bf16" in flags or " bf16" in flags
        assert has_native_bfloat16(torch.device("cpu")) is native
