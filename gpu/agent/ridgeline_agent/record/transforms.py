"""The transforms of torch.func."""

from __future__ import annotations

import torch


def is_transformed() -> bool:
    """Whether a transform is active: it has its own backward pass and tensors without values."""
    level = getattr(torch._C._functorch, "maybe_current_level", None)
    return level is not None and level() is not None
