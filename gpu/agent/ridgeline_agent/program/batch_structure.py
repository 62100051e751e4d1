"""The structure of a batch without its data: types, shapes and containers (docs/recording.md,
`batch.json`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# More than any batch has, and few enough to describe in every profiled iteration.
_MAX_PARTS = 4096
_MAX_DEPTH = 8

_PLAIN: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes"}
_VALUES: dict[str, Any] = {"bool": False, "int": 1, "float": 1.0, "str": "", "bytes": b""}

Structure = dict[str, Any]


class NotDescribable(ValueError):
    """The batch contains something that cannot be recreated without its data."""


def describe(batch: object) -> Structure:
    """Returns the structure of a batch. Raises NotDescribable for objects of other classes."""
    remaining = [_MAX_PARTS]

    def part(value: Any, depth: int) -> Structure:
        remaining[0] -= 1
        if remaining[0] < 0 or depth > _MAX_DEPTH:
            raise NotDescribable("it has too many parts")
        kind = type(value)
        if kind is torch.Tensor and value.layout is torch.strided:
            return {"tensor": str(value.dtype).rpartition(".")[2], "shape": list(value.shape)}
        if value is None:
            return {"none": True}
        if kind in _PLAIN:
            return {"value": _PLAIN[kind]}
        if kind in (list, tuple):
            items = [part(item, depth + 1) for item in value]
            return {"list" if kind is list else "tuple": _runs(items)}
        if kind is dict:
            pairs = []
            for key, item in value.items():
                if type(key) not in (str, int):
                    raise NotDescribable(f"a key has type {type(key).__name__}")
                pairs.append([key, part(item, depth + 1)])
            return {"dict": pairs}
        raise NotDescribable(f"a part has type {kind.__name__}")

    return part(batch, 0)


def make(
    structure: Structure,
    tensor: Callable[[tuple[int, ...], torch.dtype], torch.Tensor],
    recorded: int | None,
    wanted: int | None,
) -> Any:
    """Creates a batch of this structure. `tensor` creates its tensors. If the wanted batch size
    differs from the recorded one, the recorded size is replaced wherever it occurs.
    """

    def size(value: int) -> int:
        return wanted if wanted is not None and value == recorded else value

    def shape(sizes: list[int]) -> tuple[int, ...]:
        # The samples may be in the second dimension, but only in one dimension.
        for axis, value in enumerate(sizes):
            if value == recorded:
                return (*sizes[:axis], size(value), *sizes[axis + 1 :])
        return tuple(sizes)

    def part(described: Structure) -> Any:
        if "tensor" in described:
            return tensor(shape(described["shape"]), getattr(torch, described["tensor"]))
        if "value" in described:
            return _VALUES[described["value"]]
        for name, kind in (("list", list), ("tuple", tuple)):
            if name in described:
                runs = described[name]
                return kind(part(item) for count, item in runs for _ in range(size(count)))
        if "dict" in described:
            return {key: part(item) for key, item in described["dict"]}
        return None

    return part(structure)


def _runs(items: list[Structure]) -> list[list[Any]]:
    """Groups equal neighbours into `[count, structure]`."""
    runs: list[list[Any]] = []
    for item in items:
        if runs and runs[-1][1] == item:
            runs[-1][0] += 1
        else:
            runs.append([1, item])
    return runs
