"""Autocast for the claimed device.

Its tensors are CPU tensors to C++, so CPU autocast casts what CUDA autocast would: convolutions and
matrix multiplications. What CUDA autocast computes in float32 and CPU autocast does not is cast
here, by the names in torch's documentation ("CUDA Ops that can autocast to float32").

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_HALF = (torch.float16, torch.bfloat16)

_TO_FLOAT = (
    "acos", "asin", "cosh", "cdist", "cosine_similarity", "cumprod", "cumsum", "dist", "erfinv",
    "exp", "expm1", "group_norm", "layer_norm", "log", "log10", "log_softmax", "log1p", "log2",
    "norm", "pdist", "pow", "prod", "reciprocal", "rsqrt", "sinh", "softmax", "sum", "renorm",
    "tan", "binary_cross_entropy_with_logits", "hinge_embedding_loss", "kl_div",
    "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss", "cosine_embedding_loss",
)  # fmt: skip
_LOSSES_AND_OTHERS = (
    "cross_entropy_loss", "mse_loss", "nll_loss_nd", "nll_loss", "nll_loss2d", "l1_loss",
    "smooth_l1_loss", "huber_loss", "multi_margin_loss", "multilabel_margin_loss",
    "soft_margin_loss", "softplus",
)  # fmt: skip


# The device's active autocast regions: the type of each, or None if it is disabled.
_open: list[torch.dtype | None] = []


def install() -> None:
    """Replaces `torch.autocast("cuda")`, and the functions that query it."""
    kind: Any = torch.autocast
    init, enter, leave = kind.__init__, kind.__enter__, kind.__exit__

    @functools.wraps(init)
    def __init__(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        *rest: Any,
        **named: Any,
    ) -> None:
        self._claimed = device_type == "cuda"
        if self._claimed:
            device_type, dtype = "cpu", dtype or torch.get_autocast_gpu_dtype()
        init(self, device_type, dtype, enabled, *rest, **named)

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        if self._claimed:
            _open.append(self.fast_dtype if self._enabled else None)
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        if self._claimed:
            _open.pop()
        return leave(self, *error)

    kind.__init__, kind.__enter__, kind.__exit__ = __init__, __enter__, __exit__
    _patch_queries()
    for owner in (torch, torch.Tensor, torch.special):
        for name in _TO_FLOAT:
            _compute_in_float(owner, name)
    for name in _LOSSES_AND_OTHERS:
        _compute_in_float(torch._C._nn, name)


def dtype() -> torch.dtype | None:
    """Returns the type that the device's autocast casts to, or None if it is off."""
    return _open[-1] if _open else None


def _patch_queries() -> None:
    enabled: Any = torch.is_autocast_enabled
    gpu_dtype = torch.get_autocast_gpu_dtype
    of_device: Any = torch.get_autocast_dtype

    def is_enabled(device_type: str = "cuda") -> bool:
        return dtype() is not None if device_type == "cuda" else bool(enabled(device_type))

    torch.is_autocast_enabled = is_enabled
    torch.get_autocast_gpu_dtype = lambda: dtype() or gpu_dtype()
    torch.get_autocast_dtype = lambda device_type: (
        torch.get_autocast_gpu_dtype() if device_type == "cuda" else of_device(device_type)
    )


def _compute_in_float(owner: Any, name: str) -> None:
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def in_float(*args: Any, **kwargs: Any) -> Any:
        if not _open or _open[-1] is None:
            return function(*args, **kwargs)
        return function(*map(_cast, args), **{key: _cast(value) for key, value in kwargs.items()})

    setattr(owner, name, in_float)


def _cast(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _HALF:
        return value.float()
    return value
