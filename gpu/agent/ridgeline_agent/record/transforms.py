"""The transforms of torch.func."""

from __future__ import annotations

import torch


def is_transformed() -> bool:
    """Whether one is under way: it has a backward pass of its own, and its tensors no values."""
    level = getattr(torch._C._functorch, "maybe_current_level", None)
    return level is not None and level() is not None
