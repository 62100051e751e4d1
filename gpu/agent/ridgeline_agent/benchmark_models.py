"""A training step of the models of NVIDIA's PyTorch examples as the tables of `lambda/` name them,
in FP32 or in FP16 mixed precision. Written from the papers; only sizes matter here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from .benchmark_language import BertForAnswers, Gnmt, TransformerXl
from .benchmark_vision import NeuralFiltering, Ssd300, resnet50
from .model_step import made, record_step
from .operator_recorder import OperatorRecorder

Inputs = Callable[[torch.device], tuple[Any, ...]]


class Benchmark(NamedTuple):
    """`whole` says that mixed precision casts the model itself (Apex's O2, and programs that do it
    by hand), and not operator by operator. The model answers its loss.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    whole: bool
    momentum_only: bool = False


def _images(side: int) -> Callable[[int], Inputs]:
    def of(batch: int) -> Inputs:
        return lambda device: (torch.randn(batch, 3, side, side, device=device),)

    return of


def _tokens(length: int) -> Callable[[int], Inputs]:
    def of(batch: int) -> Inputs:
        return lambda device: (torch.ones(batch, length, dtype=torch.long, device=device),)

    return of


# Sentences of WMT16 have some 30 parts of words on average.
_SENTENCE = 30

BENCHMARKS: dict[str, Benchmark] = {
    "resnet50": Benchmark(resnet50, _images(224), whole=False, momentum_only=True),
    "ssd": Benchmark(Ssd300, _images(300), whole=False, momentum_only=True),
    "ncf": Benchmark(NeuralFiltering, _tokens(1), whole=False),
    "bert_base_squad": Benchmark(lambda: BertForAnswers(12, 768, 12), _tokens(384), whole=True),
    "bert_large_squad": Benchmark(lambda: BertForAnswers(24, 1024, 16), _tokens(384), whole=True),
    "gnmt": Benchmark(Gnmt, _tokens(_SENTENCE), whole=True),
    "transformerxlbase": Benchmark(
        lambda: TransformerXl(layers=16, width=512, heads=8, inner=2048, memory=192),
        _tokens(192),
        whole=True,
    ),
    "transformerxllarge": Benchmark(
        lambda: TransformerXl(layers=18, width=1024, heads=16, inner=4096, memory=256),
        _tokens(256),
        whole=True,
    ),
}


def benchmark_step(name: str, batch: int, *, half: bool) -> OperatorRecorder:
    """The operators of one step at `batch` samples.

    Raises ValueError where there is no such model here.
    """
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        raise ValueError(f"no model {name!r} is written down")
    model = made(benchmark.make)
    if half and benchmark.whole:
        model = model.half()

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if benchmark.momentum_only:
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)
        return torch.optim.Adam(parameters, lr=1e-3, fused=True)

    return record_step(
        model,
        benchmark.inputs(batch),
        loss=lambda value: value,
        optimizer=optimizer,
        autocast=torch.float16 if half and not benchmark.whole else None,
    )
