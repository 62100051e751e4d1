"""Fake tensors that claim to be on a CUDA device, on a machine that may have none.

FakeTensorMode can run most of the forward pass that way. This module handles the exceptions
(`models/fake_backward.py` handles the backward pass):
- Fused attention queries the driver for the device's kernels.
- Autocast disables itself without a device.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class FusedAttention(TorchFunctionMode):
    """Selects the kernel of `scaled_dot_product_attention` as torch does on CUDA devices since
    Ampere: flash attention for half precision without a mask, else the memory-efficient one
    (torch/nn/attention, sdp_utils.cpp). Before Ampere, `flash` is False.
    """

    def __init__(self, flash: bool = True) -> None:
        super().__init__()
        self._flash = flash

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            query = args[0] if args else kwargs["query"]
            # The fused kernels require batch, heads, sequence and width. Otherwise torch computes
            # attention step by step.
            if query.dim() == 4:
                return self._attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if torch.is_autocast_enabled() and query.dtype == torch.float32:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                half = torch.get_autocast_gpu_dtype()
            query, key, value = query.to(half), key.to(half), value.to(half)
        if enable_gqa:
            repeats = query.size(-3) // key.size(-3)
            key = key.repeat_interleave(repeats, -3)
            value = value.repeat_interleave(repeats, -3)
        width = query.size(-1)
        scale = 1 / math.sqrt(width) if scale is None else scale
        half_precision = query.dtype in (torch.float16, torch.bfloat16)
        same_width = value.size(-1) == width
        if self._flash and half_precision and attn_mask is None and width <= 256 and same_width:
            # Flash attention requires multiples of eight; torch pads the width and slices the
            # result.
            pad = -width % 8
            if pad:
                query, key, value = (
                    torch.nn.functional.pad(tensor, (0, pad)) for tensor in (query, key, value)
                )
            flash = torch.ops.aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )
            attended: torch.Tensor = flash[0]
            return attended[..., :width] if pad else attended
        if attn_mask is not None:
            attn_mask = _bias(attn_mask, query, key)
        wants_gradient = query.requires_grad or key.requires_grad or value.requires_grad
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale
        )
        result: torch.Tensor = efficient[0]
        return result


@contextlib.contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """Autocast for CUDA tensors, even without a device."""
    # These functions have newer names, which older versions of torch lack.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
        _set_autocast(True, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            _set_autocast(*before)


def _set_autocast(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled(enabled)
    torch.set_autocast_gpu_dtype(dtype)


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Converts a boolean mask to an additive bias, as torch does before it calls the kernel."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(
            mask.logical_not(), float("-inf")
        )
    mask = mask.to(query.dtype)
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
