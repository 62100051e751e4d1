"""Operators that torch selects by device, where Python can still select them.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn import functional

from ..arena import Arena
from ..fake_device import FusedAttention
from . import claimed_autocast

# cuDNN's numbers for kinds of recurrent layers (cudnnRNNMode_t).
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def install(arena: Arena) -> None:
    """On the device, attention is fused, and recurrent layers use cuDNN."""
    _fuse_attention(arena)
    for name, mode in _MODES.items():
        _use_cudnn(arena, name, mode)
    # cuDNN wants contiguous weights; there is nothing to do here.
    torch.nn.RNNBase.flatten_parameters = lambda self: None  # type: ignore[method-assign]


def _fuse_attention(arena: Arena) -> None:
    plain = functional.scaled_dot_product_attention
    backends: Any = torch.backends.cuda

    @functools.wraps(plain)
    def attention(query: Any, *args: Any, **kwargs: Any) -> Any:
        flash, efficient = backends.flash_sdp_enabled(), backends.mem_efficient_sdp_enabled()
        if not arena.on_device(query) or query.dim() != 4 or not efficient:
            return plain(query, *args, **kwargs)
        return FusedAttention(flash)._attention(query, *args, **kwargs)

    functional.scaled_dot_product_attention = attention
    torch._C._nn.scaled_dot_product_attention = attention


def _use_cudnn(arena: Arena, name: str, mode: int) -> None:
    variants: Any = torch._VF
    plain = getattr(variants, name)

    def recurrent(x: Any, *args: Any) -> Any:
        if not arena.on_device(x):
            return plain(x, *args)
        # (input, batch_sizes, hx, …) is a packed sequence, (input, hx, …) a padded one.
        packed = isinstance(args[0], torch.Tensor) and args[0].dtype is torch.int64
        batch_sizes = args[0].tolist() if packed else []
        hidden, weights, biased, layers, dropout, training, both, *rest = args[packed:]
        batch_first = bool(rest and rest[0])
        half = claimed_autocast.dtype()
        if half is not None:
            x, hidden, weights = _cast(x, half), _cast(hidden, half), _cast(weights, half)
        state, cell = hidden if mode == _MODES["lstm"] else (hidden, None)
        width = weights[1].shape[1]
        # cuDNN has all weights in one buffer, which is not counted twice.
        buffer = weights[0].detach()
        result = torch.ops.aten._cudnn_rnn(
            x, list(weights), 4 if biased else 2, buffer, state, cell, mode, width, 0, layers,
            batch_first, dropout, training, both, batch_sizes, None,
        )  # fmt: skip
        return result[:3] if mode == _MODES["lstm"] else result[:2]

    setattr(variants, name, recurrent)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return [_cast(item, dtype) for item in value]
