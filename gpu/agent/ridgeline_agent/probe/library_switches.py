"""Switches of a GPU's libraries that decide how an operator runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

Switch = Callable[[], AbstractContextManager[None]]


@contextmanager
def _tf32() -> Iterator[None]:
    """Products round their factors to TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """cuDNN tries its algorithms where it did not, or goes by its rules where it tried them."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


# By the variant's name in a request.
SWITCHES: dict[str, Switch] = {"tf32": _tf32, "cudnn_benchmark": _cudnn_benchmark}
