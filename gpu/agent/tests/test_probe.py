"""Probes of single operators, optimizers and recurrent layers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agent_driver import TIMEOUT_SECONDS, Agent
from ridgeline_agent.probe import run_probes
from ridgeline_agent.probe.arguments import Call
from ridgeline_agent.probe.library_switches import SWITCHES
from ridgeline_agent.protocol.spec import Entry, RunSpec

DTYPE_VARIANTS = ["same", "bfloat16"]
ALL_VARIANTS = ["same", "bfloat16", "channels_last"]


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"t": dtype, "s": list(shape)}


def operator(name: str, inputs: list[Any], variants: list[str] = DTYPE_VARIANTS) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "variants": variants}


def probe(agent: Agent, folder: Path, identifier: int, **request: Any) -> dict[str, Any]:
    """Runs a probe that must complete and returns the contents of `probes.json`."""
    request_file = folder / "request.json"
    request_file.write_text(json.dumps({"version": 1, "seconds": 4, **request}))
    agent.send(
        {
            "op": "probe",
            "id": identifier,
            "out": str(folder),
            "root": str(folder),
            "request": str(request_file),
            "device": "cpu",
            "limits": {"seconds": TIMEOUT_SECONDS, "memory_bytes": 2**31},
        }
    )
    finished = agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", finished
    answer: dict[str, Any] = json.loads((folder / "probes.json").read_text())
    return answer


# As in the profiler's trace: positional arguments, no overload names, numbers as numbers.
RECORDED = [
    operator("aten::mm", [tensor(64, 96), tensor(96, 32)]),
    operator("aten::linear", [tensor(8, 64), tensor(32, 64), tensor(32)]),
    operator("aten::addmm", [tensor(32), tensor(8, 64), tensor(64, 32), 1, 1]),
    operator(
        "aten::conv2d",
        [tensor(2, 8, 16, 16), tensor(8, 8, 3, 3), None, [1, 1], [1, 1], [1, 1], 1],
        ALL_VARIANTS,
    ),
    operator(
        "aten::convolution_backward",
        [
            *(tensor(2, 8, 16, 16), tensor(2, 8, 16, 16), tensor(8, 8, 3, 3)),
            *([0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]),
        ],
        ALL_VARIANTS,
    ),
    operator(
        "aten::batch_norm",
        [tensor(2, 8, 16, 16), *[tensor(8)] * 4, True, 0.1, 1e-5, True],
        ALL_VARIANTS,
    ),
    operator(
        "aten::native_batch_norm_backward",
        [
            *(tensor(2, 8, 16, 16), tensor(2, 8, 16, 16)),
            *([tensor(8)] * 5),
            *(True, 1e-5, [True, True, True]),
        ],
        ALL_VARIANTS,
    ),
    operator("aten::add_", [tensor(2, 8, 16, 16), tensor(2, 8, 16, 16), 1], ALL_VARIANTS),
    operator("aten::mul", [tensor(4, 4), tensor(dtype="float64")]),
    operator("aten::div", [tensor(4, 4), 3]),
    operator("aten::masked_fill", [tensor(4, 4), tensor(4, 4, dtype="bool"), "-inf"]),
    operator("aten::cat", [[tensor(4, 4), tensor(4, 4)], 1]),
    operator("aten::embedding", [tensor(50, 8), tensor(4, 6, dtype="int64"), -1, False, False]),
    operator(
        "aten::embedding_dense_backward",
        [tensor(4, 6, 8), tensor(4, 6, dtype="int64"), 50, -1, False],
    ),
    operator("aten::cross_entropy_loss", [tensor(4, 7), tensor(4, dtype="int64"), None, 1, -100]),
    operator("aten::layer_norm", [tensor(4, 6, 8), [8], tensor(8), tensor(8), 1e-5, True]),
    operator(
        "aten::scaled_dot_product_attention",
        [*[tensor(2, 2, 8, 8)] * 3, None, 0, True],
    ),
    operator("aten::_softmax_backward_data", [tensor(4, 7), tensor(4, 7), 1, 6]),
    operator(
        "aten::max_pool2d",
        [tensor(2, 8, 16, 16), [3, 3], [2, 2], [1, 1], [1, 1], False],
        ALL_VARIANTS,
    ),
    operator("aten::dropout", [tensor(4, 7), 0.1, True]),
]


@pytest.mark.parametrize("fixture", ["agent", "standby"])
def test_recorded_operators(request: pytest.FixtureRequest, tmp_path: Path, fixture: str) -> None:
    agent = request.getfixturevalue(fixture)
    answer = probe(agent, tmp_path, 1, operators=RECORDED)
    assert answer["notes"] == []
    for requested, result in zip(RECORDED, answer["operators"]):
        assert result["name"] == requested["name"]
        assert all(result[variant] > 0 for variant in requested["variants"]), (
            result,
            answer["notes"],
        )


OPTIMIZERS = ["for-loop", "foreach", "fused"]


def test_optimizers(agent: Agent, tmp_path: Path) -> None:
    def request(kind: str, **extra: Any) -> dict[str, Any]:
        shapes = [[64, 64], [64], [7]]
        return {"type": kind, "shapes": shapes, "variants": OPTIMIZERS, **extra}

    optimizers = [
        request("Adam", options={"lr": 1e-3, "betas": [0.9, 0.95], "capturable": True}),
        request("SGD", options={"lr": 0.1, "momentum": 0.9, "unknown_option": 1}),
        request("RMSprop"),
        request("MyOptimizer"),
    ]
    answer = probe(agent, tmp_path, 2, optimizers=optimizers)
    adam, sgd, rmsprop, unknown = answer["optimizers"]
    assert all(result[variant] > 0 for result in (adam, sgd) for variant in OPTIMIZERS)
    assert rmsprop["foreach"] > 0 and rmsprop["fused"] is None
    assert all(unknown[variant] is None for variant in OPTIMIZERS)
    assert len(answer["notes"]) == 2


def test_recurrent_layers_and_cells(agent: Agent, tmp_path: Path) -> None:
    def request(kind: str, **extra: Any) -> dict[str, Any]:
        sizes = {"steps": 9, "batch": 2, "input": 3, "hidden": 4}
        return {"type": kind, **sizes, "bias": True, "variants": ["cell", "layer"], **extra}

    kinds = ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]
    invalid = [request("Mamba"), request("GRU", steps=0), request("GRU", hidden=2**30), 7]
    answer = probe(
        agent, tmp_path, 8, cells=[*map(request, kinds), request("GRU", bias=False), *invalid]
    )
    valid = answer["cells"][:5]
    assert [result["type"] for result in valid] == [*kinds, "GRU"]
    assert all(result["cell"] > 0 and result["layer"] > 0 for result in valid), answer["notes"]
    assert all(result.get("layer") is None for result in answer["cells"][5:])
    assert len(answer["notes"]) == 3


def test_failed_operators_are_null_with_notes(agent: Agent, tmp_path: Path) -> None:
    operators = [
        operator("aten::no_such_operator", [tensor(2, 2)]),
        operator("mylib::mine", [tensor(2, 2)]),
        operator("aten::mm", [tensor(2, 3), tensor(2, 3)]),
        operator("aten::mm", [tensor(2**20, 2**20), tensor(2**20, 2**20)]),
        operator("aten::relu", [{"t": "nonsense", "s": [1]}]),
        operator("aten::relu", [{"t": "float32", "s": [-1]}]),
        operator("aten::relu", []),
    ]
    answer = probe(agent, tmp_path, 3, operators=[*operators, 7, {"name": 3}])
    assert all(result.get("same") is None for result in answer["operators"])
    assert len(answer["notes"]) >= 6


def test_variant_without_effect_has_same_time(agent: Agent, tmp_path: Path) -> None:
    requested = operator("aten::mm", [tensor(64, 64), tensor(64, 64)], ["same", "channels_last"])
    result = probe(agent, tmp_path, 4, operators=[requested])["operators"][0]
    assert result["channels_last"] == result["same"]


def test_library_switches(agent: Agent, tmp_path: Path) -> None:
    convolution = next(op for op in RECORDED if op["name"] == "aten::conv2d")
    operators = [
        operator("aten::mm", [tensor(64, 96), tensor(96, 32)], ["same", "tf32"]),
        {**convolution, "variants": ["same", "cudnn_benchmark"]},
    ]
    answer = probe(agent, tmp_path, 5, operators=operators)
    for requested, result in zip(operators, answer["operators"]):
        assert all(result[variant] > 0 for variant in requested["variants"]), (
            result,
            answer["notes"],
        )


def test_minimally_aligned() -> None:
    image = torch.rand(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    call = Call(torch.ops.aten.relu.default, [[image], torch.arange(5)], {"bias": torch.rand(3)})
    realigned = call.minimally_aligned()
    for call_copy in (realigned, realigned.copy()):
        assert [tensor.data_ptr() % 64 for tensor in call_copy.tensors()] == [16, 16, 16]
        assert call_copy.tensors()[0].stride() == image.stride()
        pairs = zip(call_copy.tensors(), call.tensors())
        assert all(torch.equal(actual, expected) for actual, expected in pairs)


def test_switches_are_restored() -> None:
    with SWITCHES["tf32"]():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"
    for original in (True, False):
        torch.backends.cudnn.benchmark = original
        with pytest.raises(RuntimeError), SWITCHES["cudnn_benchmark"]():
            assert torch.backends.cudnn.benchmark is not original
            raise RuntimeError
        assert torch.backends.cudnn.benchmark is original


class NoHost:
    def progress(self, stage: str, done: int, total: int) -> None:
        pass


def test_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With a simulated clock, each operator takes 300 ms of the total limit of one second.
    now, allowed = [100.0], []

    def probe_operator(
        operator: Any, device: Any, memory: Any, rotated: Any, until: float, _: Any
    ) -> Any:
        allowed.append(until - now[0])
        now[0] += 0.3
        return {"same": 1.0}

    monkeypatch.setattr(run_probes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(run_probes, "probe_operator", probe_operator)
    entry = Entry("script", "train.py")
    spec = RunSpec(id=1, out=str(tmp_path), root=str(tmp_path), entry=entry, cwd=str(tmp_path))
    request = {"operators": [{}] * 10, "seconds": 1}
    results = run_probes.ProbeResults(spec, NoHost(), request)  # type: ignore[arg-type]
    results.measure(torch.device("cpu"), now[0])
    results.write()
    answer = json.loads((tmp_path / "probes.json").read_text())
    assert answer["operators"] == [{"same": 1.0}] * 4 + [{}] * 6
    assert allowed == pytest.approx([1.0 / 10, 0.7 / 9, 0.4 / 8, 0.1 / 7])
    assert "time limit was reached" in answer["notes"][-1]


def test_invalid_requests_are_rejected(agent: Agent, tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"operators": 3, "seconds": "x"}'):
        (tmp_path / "request.json").write_text(text)
        agent.send(
            {
                "op": "probe",
                "id": 6,
                "out": str(tmp_path),
                "root": str(tmp_path),
                "request": str(tmp_path / "request.json"),
            }
        )
        finished = agent.wait_for("finished", id=6)
        assert finished["outcome"] == ("complete" if "operators" in text else "exited")
