"""A training step of the models in NVIDIA's PyTorch examples, with the names of the tables in
`lambda/`, in FP32 or FP16 mixed precision. Written from the papers; only sizes matter here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from ..estimate.operator_recorder import OperatorRecorder
from .benchmark_language import BertForAnswers, Gnmt, TransformerXl
from .benchmark_updates import (
    Update,
    adam_clipped,
    fused_adam,
    fused_adam_clipped,
    lamb_clipped,
    momentum,
    with_master_weights,
)
from .benchmark_vision import NeuralFiltering, Ssd300, resnet50
from .model_step import create_without_values, record_step

Inputs = Callable[[torch.device], tuple[Any, ...]]


class Benchmark(NamedTuple):
    """A benchmark model that returns its loss. `whole` means that mixed precision casts the model
    itself (Apex's O2) rather than single operators: the weights are then updated as FP32 copies.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    whole: bool
    update: Update
    half_update: Update | None = None


def _images(side: int) -> Callable[[int], Inputs]:
    def of(batch: int) -> Inputs:
        return lambda device: (torch.randn(batch, 3, side, side, device=device),)

    return of


def _tokens(length: int) -> Callable[[int], Inputs]:
    def of(batch: int) -> Inputs:
        return lambda device: (torch.ones(batch, length, dtype=torch.long, device=device),)

    return of


# Sentences of WMT16 have about 30 subword tokens on average.
_SENTENCE = 30

BENCHMARKS: dict[str, Benchmark] = {
    "resnet50": Benchmark(resnet50, _images(224), whole=False, update=momentum),
    "ssd": Benchmark(Ssd300, _images(300), whole=False, update=momentum),
    "ncf": Benchmark(NeuralFiltering, _tokens(1), whole=False, update=fused_adam),
    # `run_squad.py`: `BertAdam`, and Apex's `FusedAdam` in FP16.
    "bert_base_squad": Benchmark(
        lambda: BertForAnswers(12, 768, 12),
        _tokens(384),
        whole=True,
        update=adam_clipped,
        half_update=fused_adam_clipped,
    ),
    "bert_large_squad": Benchmark(
        lambda: BertForAnswers(24, 1024, 16),
        _tokens(384),
        whole=True,
        update=adam_clipped,
        half_update=fused_adam_clipped,
    ),
    "gnmt": Benchmark(Gnmt, _tokens(_SENTENCE), whole=True, update=adam_clipped),
    "transformerxlbase": Benchmark(
        lambda: TransformerXl(layers=16, width=512, heads=8, inner=2048, memory=192, dropout=0.1),
        _tokens(192),
        whole=True,
        update=lamb_clipped,
    ),
    "transformerxllarge": Benchmark(
        lambda: TransformerXl(layers=18, width=1024, heads=16, inner=4096, memory=256, dropout=0.2),
        _tokens(256),
        whole=True,
        update=adam_clipped,
    ),
}


def benchmark_step(name: str, batch: int, *, half: bool) -> OperatorRecorder:
    """Returns the operators of one step with `batch` samples.

    Raises ValueError if the model is unknown.
    """
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        raise ValueError(f"no model {name!r} is written down")
    model = create_without_values(benchmark.make)
    if half and benchmark.whole:
        model = model.half()

    update = benchmark.update
    if half and benchmark.whole:
        update = with_master_weights(benchmark.half_update or benchmark.update)
    return record_step(
        model,
        benchmark.inputs(batch),
        loss=lambda value: value,
        optimizer=update,
        autocast=torch.float16 if half and not benchmark.whole else None,
    )
