"""A step of a `timm` model as in that project's benchmark.py (`--amp`, SGD with momentum,
cross-entropy): see `BenchmarkRunner` there.
"""

from __future__ import annotations

from typing import Any

import timm
import timm.layers
import torch

from ..estimate.operator_recorder import OperatorRecorder
from .model_step import create_without_values, record_step


def timm_step(
    name: str,
    size: int,
    batch: int,
    *,
    train: bool,
    channels_last: bool,
    fused_attention: bool,
    foreach: bool,
    keeps_gradients: bool,
) -> OperatorRecorder:
    """Returns the operators of one step with `batch` images of `size` x `size`.

    `fused_attention`, `foreach` and `keeps_gradients` describe the measured version of torch: since
    2.0 it has `scaled_dot_product_attention`, foreach optimizers, and a `zero_grad()` that frees
    the gradients.
    """
    timm.layers.set_fused_attn(fused_attention)
    model = create_without_values(lambda: _created(name, size))
    channels, height, width = _input_size(model, size)

    def images(device: torch.device) -> tuple[Any, ...]:
        return (torch.randn(batch, channels, height, width, device=device),)

    def loss(output: Any) -> torch.Tensor:
        if isinstance(output, (tuple, list)):
            output = output[0]
        target = torch.empty(output.shape[0], dtype=torch.long, device=output.device)
        target = target.random_(output.shape[-1])
        return torch.nn.functional.cross_entropy(output, target)

    def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, nesterov=True, foreach=foreach)

    return record_step(
        model,
        images,
        loss=loss if train else None,
        optimizer=optimizer if train else None,
        autocast=torch.float16,
        channels_last=channels_last,
        keeps_gradients=keeps_gradients,
    )


def _created(name: str, size: int) -> torch.nn.Module:
    try:
        # Models with a fixed grid of positions need this argument; others do not have it.
        return timm.create_model(name, img_size=size)  # type: ignore[no-any-return]
    except TypeError:
        return timm.create_model(name)  # type: ignore[no-any-return]


def _input_size(model: torch.nn.Module, size: int) -> tuple[int, int, int]:
    configured = getattr(model, "pretrained_cfg", {}).get("input_size", (3, size, size))
    # The measurements only have the width. A model whose images are not square keeps its shape.
    if configured[-1] == size:
        channels, height, width = configured
        return int(channels), int(height), int(width)
    return int(configured[0]), size, size
