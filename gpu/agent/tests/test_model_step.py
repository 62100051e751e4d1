"""Operators of a model's training step, recorded with fake tensors and without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import agent_driver

torch = pytest.importorskip("torch")

from ridgeline_agent.estimate.operator_recorder import (  # noqa: E402
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    OTHER,
    OperatorRecorder,
)
from ridgeline_agent.models.benchmark_models import BENCHMARKS, benchmark_step  # noqa: E402
from ridgeline_agent.models.model_step import create_without_values, record_step  # noqa: E402
from ridgeline_agent.models.transformer_model import transformer_step  # noqa: E402

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
pytestmark = [
    pytest.mark.runs_operators,
    # Only developers list models, with `ridgeline evaluate`.
    pytest.mark.skipif(VERSION <= (2, 8), reason="fake CUDA tensors need a driver in this version"),
]

BATCH = 4


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, 96)

    def forward(self, tokens: Any) -> Any:
        query, key, value = self.project(tokens).view(BATCH, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)


def convolutional_model() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16 * 16, 10),
    )


def images(device: Any) -> tuple[Any, ...]:
    return (torch.randn(BATCH, 3, 16, 16, device=device),)


def sgd(parameters: list[Any]) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def operator_counts(recorder: OperatorRecorder, phase: int) -> Counter[str]:
    columns = recorder.columns()
    operators = columns["ops"]
    return Counter(
        columns["signatures"][signature]["op"]
        for signature, operator_phase in zip(operators["signature"], operators["phase"])
        if operator_phase == phase
    )


def test_step_has_three_phases() -> None:
    recorder = record_step(
        convolutional_model(), images, loss=lambda out: out.mean(), optimizer=sgd
    )
    forward, backward, step = (
        operator_counts(recorder, phase) for phase in (FORWARD, BACKWARD, OPTIMIZER)
    )
    assert forward["aten::convolution"] == 1
    assert forward["aten::addmm"] == 1
    assert backward["aten::convolution_backward"] == 1
    # The gradients of the linear layer's weight and of its input.
    assert backward["aten::mm"] == 2
    # Momentum exists from the first step. For each of the five parameters, it is scaled, the
    # gradient is added to it, and the parameter is updated.
    assert step == {"aten::mul_.Tensor": 5, "aten::add_.Tensor": 10}


def test_kept_gradients_are_accumulated() -> None:
    def additions(keeps_gradients: bool) -> int:
        recorder = record_step(
            convolutional_model(),
            images,
            loss=lambda out: out.mean(),
            keeps_gradients=keeps_gradients,
        )
        return operator_counts(recorder, BACKWARD)["aten::add_.Tensor"]

    assert additions(True) - additions(False) == 5


def test_inference_under_autocast_casts_each_weight() -> None:
    recorder = record_step(convolutional_model(), images, loss=None, autocast=torch.float16)
    assert not operator_counts(recorder, BACKWARD)
    forward = operator_counts(recorder, FORWARD)
    # The weight and the input of the convolution, and the weight and the bias of the linear layer.
    assert forward["aten::_to_copy"] == 4
    convolution = next(
        signature
        for signature in recorder.columns()["signatures"]
        if signature["op"] == "aten::convolution"
    )
    assert [tensor["t"] for tensor in convolution["in"][:2]] == ["float16", "float16"]
    assert convolution["out"] == [{"t": "float16", "s": [BATCH, 8, 16, 16]}]


def test_channels_last_strides() -> None:
    recorder = record_step(convolutional_model(), images, loss=None, channels_last=True)
    convolution = recorder.columns()["signatures"][0]
    assert convolution["op"] == "aten::convolution"
    assert convolution["in"][0] == {"t": "float32", "s": [BATCH, 3, 16, 16], "d": [768, 1, 48, 3]}


@pytest.mark.parametrize(
    ("autocast", "operator"),
    [
        (torch.float16, "aten::_scaled_dot_product_flash_attention"),
        (None, "aten::_scaled_dot_product_efficient_attention"),
    ],
)
def test_attention_uses_cuda_kernel(autocast: Any, operator: str) -> None:
    def tokens(device: Any) -> tuple[Any, ...]:
        return (torch.randn(BATCH, 16, 32, device=device),)

    recorder = record_step(
        Attention(), tokens, loss=lambda out: out.float().mean(), autocast=autocast
    )
    assert operator_counts(recorder, FORWARD)[operator] == 1
    assert operator_counts(recorder, BACKWARD)[f"{operator}_backward"] == 1


def test_gradient_shapes_match_autograd() -> None:
    # A broadcast bias, a tensor used twice and a weight used twice: autograd sums their gradients.
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 3))
            self.bias = torch.nn.Parameter(torch.randn(3))

        def forward(self, value: Any) -> Any:
            once = value @ self.weight + self.bias
            return (once @ self.weight) * once

    model = Twice()
    record_step(
        model, lambda device: (torch.randn(5, 3, device=device),), loss=lambda out: out.sum()
    )
    assert model.weight.grad.shape == (3, 3)
    assert model.bias.grad.shape == (3,)


def test_create_without_values_does_not_touch_weights() -> None:
    model = create_without_values(lambda: torch.nn.Linear(100_000, 10_000))
    assert model.weight.shape == (10_000, 100_000)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    assert resident < 100_000 * 10_000 * 4


def test_create_without_values_keeps_small_tensors() -> None:
    class Rates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]

    assert create_without_values(Rates).rates == [0.0, 0.5, 1.0]


def test_loss_apart_from_forward() -> None:
    recorder = record_step(
        convolutional_model(), images, loss=lambda out: out.exp().mean(), loss_apart=True
    )
    assert operator_counts(recorder, FORWARD)["aten::exp"] == 0
    assert operator_counts(recorder, OTHER)["aten::exp"] == 1


@pytest.mark.parametrize(
    "config",
    [
        {
            "model_type": "bert",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_attention_heads": 2,
            "num_hidden_layers": 3,
            "vocab_size": 100,
            "max_position_embeddings": 16,
            "type_vocab_size": 2,
            "attention_probs_dropout_prob": 0.1,
            "hidden_dropout_prob": 0.1,
        },
        {
            "model_type": "gpt2",
            "n_embd": 32,
            "n_head": 2,
            "n_layer": 3,
            "n_positions": 16,
            "vocab_size": 100,
        },
        {
            "model_type": "opt",
            "hidden_size": 32,
            "ffn_dim": 64,
            "num_attention_heads": 2,
            "num_hidden_layers": 3,
            "vocab_size": 100,
            "max_position_embeddings": 16,
            "word_embed_proj_dim": 48,
        },
        {
            "model_type": "switch_transformers",
            "d_model": 32,
            "d_ff": 64,
            "d_kv": 16,
            "num_heads": 2,
            "num_layers": 3,
            "num_decoder_layers": 3,
            "encoder_sparse_step": 2,
            "decoder_sparse_step": 2,
            "num_experts": 2,
            "expert_capacity": 4,
            "dropout_rate": 0.1,
            "layer_norm_epsilon": 1e-6,
            "relative_attention_num_buckets": 8,
            "vocab_size": 100,
        },
    ],
    ids=lambda config: config["model_type"],
)
def test_transformer_attention_uses_separate_operators(config: dict[str, Any]) -> None:
    recorder = transformer_step(config, 16, BATCH, train=True)
    forward, backward = operator_counts(recorder, FORWARD), operator_counts(recorder, BACKWARD)
    # Switch has self-attention in encoder and decoder, and cross-attention in the decoder.
    attentions = 9 if config["model_type"] == "switch_transformers" else 3
    assert forward["aten::_softmax"] >= attentions
    assert forward["aten::bmm"] == 2 * attentions
    assert backward["aten::bmm"] == 4 * attentions
    assert not operator_counts(recorder, OPTIMIZER)


def test_unknown_architecture_raises() -> None:
    with pytest.raises(ValueError, match="mamba"):
        transformer_step({"model_type": "mamba", "vocab_size": 1}, 16, BATCH, train=False)


# A fake `timm` with the functions that the lister uses, and models that misbehave.
TIMM = """
import time
import torch

__version__ = "0.0.test"


class layers:
    @staticmethod
    def set_fused_attn(enable):
        pass


def create_model(name, img_size=None):
    if name == "endless":
        time.sleep(600)
    if name == "chatty":
        print("not an answer")
    if name == "huge":
        return torch.nn.Linear(1_000_000, 1_000_000)
    if name == "missing":
        raise RuntimeError("Unknown model (missing)")
    flat = torch.nn.Flatten()
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), flat, torch.nn.Linear(784, 5))
"""


def list_models(folder: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    package = folder / "timm"
    package.mkdir()
    (package / "__init__.py").write_text(TIMM)
    (package / "layers.py").write_text("def set_fused_attn(enable):\n    pass\n")
    process = subprocess.run(
        [sys.executable, "-m", "ridgeline_agent.models.list_models"],
        cwd=agent_driver.BOOT.parent,
        env={**os.environ, "PYTHONPATH": str(folder)},
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=agent_driver.TIMEOUT_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def request(folder: Path, request_id: int, model: str, **extra: Any) -> dict[str, Any]:
    return {
        "id": request_id,
        "kind": "timm",
        "out": str(folder / f"{model}.json"),
        "model": model,
        "size": 16,
        "batch": BATCH,
        "train": False,
        "channels_last": False,
        "fused_attention": True,
        "foreach": False,
        "keeps_gradients": False,
        **extra,
    }


def matmul_types(recorder: OperatorRecorder) -> set[str]:
    names = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution")
    signatures = recorder.columns()["signatures"]
    return {
        signature["in"][-1 if "mm" in signature["op"] else 0]["t"]
        for signature in signatures
        if signature["op"] in names
    }


@pytest.mark.parametrize("name", ["resnet50", "ssd", "ncf", "bert_base_squad", "transformerxlbase"])
def test_benchmark_matmuls_use_requested_type(name: str) -> None:
    single, half = (benchmark_step(name, 2, half=half) for half in (False, True))
    assert matmul_types(single) == {"float32"}
    assert matmul_types(half) == {"float16"}
    for recorder in (single, half):
        assert operator_counts(recorder, BACKWARD) and operator_counts(recorder, OPTIMIZER)


def test_benchmark_parameter_counts() -> None:
    # torchvision's ResNet-50, and the released BERT for question answering without its pooler.
    for name, millions in {"resnet50": 25.557, "bert_base_squad": 108.893}.items():
        model = create_without_values(BENCHMARKS[name].make)
        parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        assert parameters == pytest.approx(millions, abs=0.001)


def test_half_precision_updates_float32_master_weights() -> None:
    recorder = benchmark_step("bert_base_squad", 2, half=True)
    signatures = recorder.columns()["signatures"]
    updates = [entry for entry in signatures if entry["op"].startswith("aten::_fused_adam")]
    assert {tensor["t"] for update in updates for tensor in update["in"][0]} == {"float32"}
    copies = [entry for entry in signatures if entry["op"].startswith("aten::_foreach_copy")]
    types = {(copy["in"][0][0]["t"], copy["in"][1][0]["t"]) for copy in copies}
    assert types == {("float32", "float16"), ("float16", "float32")}


def test_transformer_xl_ties_embedding_and_output_weights() -> None:
    # Transformer-XL in the benchmark's configuration: 137 of 192 million are word embeddings.
    model = create_without_values(BENCHMARKS["transformerxlbase"].make)
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert parameters == pytest.approx(192.0, abs=4.0)


def test_unknown_benchmark_raises() -> None:
    with pytest.raises(ValueError, match="no model 'waveglow'"):
        benchmark_step("waveglow", 1, half=False)


def test_lister_survives_misbehaving_models(tmp_path: Path) -> None:
    versions, *answers = list_models(
        tmp_path,
        [
            request(tmp_path, 1, "missing"),
            request(tmp_path, 2, "endless", seconds=1),
            request(tmp_path, 3, "huge", memory_bytes=8 << 30),
            request(tmp_path, 4, "chatty"),
            {"id": 5, "kind": "unknown", "out": str(tmp_path / "none.json")},
        ],
    )
    assert versions == {"torch": torch.__version__, "timm": "0.0.test"}
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert "Unknown model (missing)" in answers[0]["error"]
    too_slow = {"id": 2, "ok": False, "too_slow": True, "error": "it took longer than 1 s"}
    assert answers[1] == too_slow
    assert not answers[2]["ok"]
    assert answers[3] == {"id": 4, "ok": True}
    assert not answers[4]["ok"]
    # Failed models leave no files, not even partial ones.
    assert [path.name for path in tmp_path.glob("*.json*")] == ["chatty.json"]
    document = json.loads((tmp_path / "chatty.json").read_text())
    assert document["version"] == 1
    assert document["outcome"] == "complete"
    assert document["device"] == "cuda"
    assert {len(column) for column in document["ops"].values()} == {
        len(document["ops"]["signature"])
    }
