"""A step of a transformer as measured by NeuSight (ASPLOS'25): FP32, eager attention, dropout in
training, forward and backward timed separately, gradients that are never cleared, no optimizer.
"""

from __future__ import annotations

from typing import Any

import torch

from ..estimate.operator_recorder import OperatorRecorder
from .decoder_models import Bert, Config, Gpt2, Opt
from .model_step import create_without_values, record_step
from .switch_model import Switch

_MAX_LAYERS = 512


def transformer_step(config: Config, sequence: int, batch: int, *, train: bool) -> OperatorRecorder:
    """Returns the operators of one step; `config` is the model's `config.json`.

    Raises ValueError for other architectures.
    """
    model = create_without_values(lambda: _created(config, train))
    vocabulary = int(config["vocab_size"])

    def tokens(device: torch.device) -> tuple[Any, ...]:
        return (torch.ones(batch, sequence, dtype=torch.long, device=device),)

    def loss(logits: torch.Tensor) -> torch.Tensor:
        target = torch.ones(batch * sequence, dtype=torch.long, device=logits.device)
        return torch.nn.functional.cross_entropy(logits.view(-1, vocabulary), target)

    return record_step(
        model, tokens, loss=loss if train else None, keeps_gradients=True, loss_apart=True
    )


def _created(config: Config, train: bool) -> torch.nn.Module:
    layers = [
        config.get(name, 0)
        for name in ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers")
    ]
    if max(int(count) for count in layers) > _MAX_LAYERS:
        raise ValueError(f"more than {_MAX_LAYERS} layers")
    kind = config.get("model_type")
    if kind == "gpt2":
        return Gpt2(config)
    if kind == "bert":
        return Bert(config, train)
    if kind == "opt":
        return Opt(config)
    if kind == "switch_transformers":
        return Switch(config)
    raise ValueError(f"no architecture for the model type {kind!r} is known")
