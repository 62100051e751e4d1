"""Sums of gradients that autograd's engine would make in place.

Where a tensor was used twice, the engine adds the second gradient into the first if nobody else
holds that (`InputBuffer::accumulate` in torch/csrc/autograd/input_buffer.cpp). Under a dispatch
mode it never does, and would seem to hold more memory than it does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_use_count_of_storage: Any = getattr(torch._C, "_storage_Use_Count", None)


class InPlaceSums:
    """Tells whether nobody else holds a gradient, by its reference counts."""

    def __init__(self) -> None:
        # The counts of a gradient that the engine alone holds while it is added.
        self._alone: tuple[int, int] | None = None

    def measure(self) -> None:
        """Learns the counts from a sum whose gradients nobody else can hold."""
        seen: list[tuple[int, int]] = []

        class Look(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if func is torch.ops.aten.add.Tensor:
                    seen.append(_counts(args[0]))
                return func(*args, **(kwargs or {}))

        if _use_count_of_storage is None:
            return
        twice = torch.ones(2, requires_grad=True) * 2
        loss = torch.cat([twice * 3, twice * 4]).sum()
        with Look():
            loss.backward()
        if len(seen) == 1:
            self._alone = seen[0]

    def of(self, args: tuple[Any, ...]) -> Any:
        """The gradient that the sum goes into; None where it needs memory of its own."""
        if self._alone is None or len(args) != 2:
            return None
        old, new = args
        if not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
            return None
        # Into the one that came first alone, whatever the other is.
        return old if _counts(old) == self._alone and _is_dense(old) else None


def _counts(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return int(tensor._use_count()), int(_use_count_of_storage(storage._cdata))


def _is_dense(tensor: Any) -> bool:
    """Whether its elements fill its storage, each once."""
    return bool(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())
