"""Single operators and optimizers, run by themselves."""

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

BOTH = ["same", "bfloat16"]
ALL = ["same", "bfloat16", "channels_last"]


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"t": dtype, "s": list(shape)}


def operator(name: str, inputs: list[Any], variants: list[str] = BOTH) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "variants": variants}


def probe(agent: Agent, folder: Path, identifier: int, **request: Any) -> dict[str, Any]:
    """What `probes.json` says; the outcome must be complete."""
    asked = folder / "request.json"
    asked.write_text(json.dumps({"version": 1, "seconds": 4, **request}))
    agent.send(
        {
            "op": "probe",
            "id": identifier,
            "out": str(folder),
            "root": str(folder),
            "request": str(asked),
            "device": "cpu",
            "limits": {"seconds": TIMEOUT_SECONDS, "memory_bytes": 2**31},
        }
    )
    finished = agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", finished
    answer: dict[str, Any] = json.loads((folder / "probes.json").read_text())
    return answer


# As the profiler writes them: by position, without overloads, numbers as numbers.
RECORDED = [
    operator("aten::mm", [tensor(64, 96), tensor(96, 32)]),
    operator("aten::linear", [tensor(8, 64), tensor(32, 64), tensor(32)]),
    operator("aten::addmm", [tensor(32), tensor(8, 64), tensor(64, 32), 1, 1]),
    operator(
        "aten::conv2d",
        [tensor(2, 8, 16, 16), tensor(8, 8, 3, 3), None, [1, 1], [1, 1], [1, 1], 1],
        ALL,
    ),
    operator(
        "aten::convolution_backward",
        [
            *(tensor(2, 8, 16, 16), tensor(2, 8, 16, 16), tensor(8, 8, 3, 3)),
            *([0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]),
        ],
        ALL,
    ),
    operator(
        "aten::batch_norm",
        [tensor(2, 8, 16, 16), *[tensor(8)] * 4, True, 0.1, 1e-5, True],
        ALL,
    ),
    operator(
        "aten::native_batch_norm_backward",
        [
            *(tensor(2, 8, 16, 16), tensor(2, 8, 16, 16)),
            *([tensor(8)] * 5),
            *(True, 1e-5, [True, True, True]),
        ],
        ALL,
    ),
    operator("aten::add_", [tensor(2, 8, 16, 16), tensor(2, 8, 16, 16), 1], ALL),
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
        "aten::max_pool2d", [tensor(2, 8, 16, 16), [3, 3], [2, 2], [1, 1], [1, 1], False], ALL
    ),
    operator("aten::dropout", [tensor(4, 7), 0.1, True]),
]


@pytest.mark.parametrize("started", ["agent", "standby"])
def test_recorded_operators_run(
    request: pytest.FixtureRequest, tmp_path: Path, started: str
) -> None:
    agent = request.getfixturevalue(started)
    answer = probe(agent, tmp_path, 1, operators=RECORDED)
    assert answer["notes"] == []
    for asked, told in zip(RECORDED, answer["operators"]):
        assert told["name"] == asked["name"]
        assert all(told[variant] > 0 for variant in asked["variants"]), (told, answer["notes"])


OPTIMIZERS = ["for-loop", "foreach", "fused"]


def test_optimizers_step(agent: Agent, tmp_path: Path) -> None:
    def asked(kind: str, **more: Any) -> dict[str, Any]:
        shapes = [[64, 64], [64], [7]]
        return {"type": kind, "shapes": shapes, "variants": OPTIMIZERS, **more}

    optimizers = [
        asked("Adam", options={"lr": 1e-3, "betas": [0.9, 0.95], "capturable": True}),
        asked("SGD", options={"lr": 0.1, "momentum": 0.9, "unheard_of": 1}),
        asked("RMSprop"),
        asked("MyOptimizer"),
    ]
    answer = probe(agent, tmp_path, 2, optimizers=optimizers)
    adam, sgd, rmsprop, other = answer["optimizers"]
    assert all(told[variant] > 0 for told in (adam, sgd) for variant in OPTIMIZERS)
    assert rmsprop["foreach"] > 0 and rmsprop["fused"] is None
    assert all(other[variant] is None for variant in OPTIMIZERS)
    assert len(answer["notes"]) == 2


def test_layers_beside_their_cells(agent: Agent, tmp_path: Path) -> None:
    def asked(kind: str, **more: Any) -> dict[str, Any]:
        sizes = {"steps": 9, "batch": 2, "input": 3, "hidden": 4}
        return {"type": kind, **sizes, "bias": True, "variants": ["cell", "layer"], **more}

    kinds = ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]
    wrong = [asked("Mamba"), asked("GRU", steps=0), asked("GRU", hidden=2**30), 7]
    answer = probe(agent, tmp_path, 8, cells=[*map(asked, kinds), asked("GRU", bias=False), *wrong])
    right = answer["cells"][:5]
    assert [told["type"] for told in right] == [*kinds, "GRU"]
    assert all(told["cell"] > 0 and told["layer"] > 0 for told in right), answer["notes"]
    assert all(told.get("layer") is None for told in answer["cells"][5:])
    assert len(answer["notes"]) == 3


def test_what_cannot_be_run_is_null_and_says_why(agent: Agent, tmp_path: Path) -> None:
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
    assert all(told.get("same") is None for told in answer["operators"])
    assert len(answer["notes"]) >= 6


def test_a_variant_that_changes_nothing_takes_as_long(agent: Agent, tmp_path: Path) -> None:
    asked = operator("aten::mm", [tensor(64, 64), tensor(64, 64)], ["same", "channels_last"])
    told = probe(agent, tmp_path, 4, operators=[asked])["operators"][0]
    assert told["channels_last"] == told["same"]


def test_a_library_runs_with_other_switches(agent: Agent, tmp_path: Path) -> None:
    convolution = next(one for one in RECORDED if one["name"] == "aten::conv2d")
    operators = [
        operator("aten::mm", [tensor(64, 96), tensor(96, 32)], ["same", "tf32"]),
        {**convolution, "variants": ["same", "cudnn_benchmark"]},
    ]
    answer = probe(agent, tmp_path, 5, operators=operators)
    for asked, told in zip(operators, answer["operators"]):
        assert all(told[variant] > 0 for variant in asked["variants"]), (told, answer["notes"])


def test_switches_run_on_tensors_that_are_aligned_otherwise() -> None:
    image = torch.rand(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    call = Call(torch.ops.aten.relu.default, [[image], torch.arange(5)], {"bias": torch.rand(3)})
    other = call.minimally_aligned()
    for made in (other, other.copy()):
        assert [tensor.data_ptr() % 64 for tensor in made.tensors()] == [16, 16, 16]
        assert made.tensors()[0].stride() == image.stride()
        pairs = zip(made.tensors(), call.tensors())
        assert all(torch.equal(one, before) for one, before in pairs)


def test_switches_are_set_back() -> None:
    with SWITCHES["tf32"]():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"
    for was in (True, False):
        torch.backends.cudnn.benchmark = was
        with pytest.raises(RuntimeError), SWITCHES["cudnn_benchmark"]():
            assert torch.backends.cudnn.benchmark is not was
            raise RuntimeError
        assert torch.backends.cudnn.benchmark is was


class NoHost:
    """Nobody follows a probe within a test."""

    def progress(self, stage: str, done: int, total: int) -> None:
        pass


def test_time_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each operator takes 300 ms, and with a second in all."""
    now, allowed = [100.0], []

    def measured(asked: Any, device: Any, memory: Any, rotated: Any, until: float, _: Any) -> Any:
        allowed.append(until - now[0])
        now[0] += 0.3
        return {"same": 1.0}

    monkeypatch.setattr(run_probes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(run_probes, "probe_operator", measured)
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


def test_a_request_that_makes_no_sense_is_refused(agent: Agent, tmp_path: Path) -> None:
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
