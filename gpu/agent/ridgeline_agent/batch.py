"""How many samples an iteration takes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from .memory import tensors_in


class BatchWatch:
    """Counts samples from loaders, a provider, or what the outermost modules are given."""

    def __init__(self) -> None:
        self._loaded: dict[int, int] = {}
        self._given: dict[Hashable, int] = {}
        self._provided: int | None = None

    @property
    def has_loader(self) -> bool:
        """Whether a loader gave something."""
        return bool(self._loaded)

    def next_iteration(self) -> BatchWatch:
        """What watches the next iteration."""
        following = BatchWatch()
        following._provided = self._provided
        return following

    def provided(self, size: int) -> None:
        """A provider was asked for inputs of this batch size."""
        self._provided = size

    def loaded(self, loader: Any, batch: object) -> None:
        """A loader gave a batch. Those of one loader add up: gradients may be accumulated."""
        size = _samples(batch, getattr(getattr(loader, "_index_sampler", None), "batch_size", None))
        if size is not None:
            self._loaded[id(loader)] = self._loaded.get(id(loader), 0) + size

    def given(self, key: Hashable, inputs: object) -> None:
        """An outermost module was called; `key` tells module and line."""
        size = _samples(inputs, None)
        if size is not None:
            self._given[key] = self._given.get(key, 0) + size

    def json(self) -> dict[str, object] | None:
        """`batch` of the manifest."""
        if self._provided is not None:
            return {"size": self._provided, "from": "provider"}
        if self._loaded:
            # Several loaders usually give parts of the same samples (images here, texts there).
            return {"size": max(self._loaded.values()), "from": "loader"}
        if self._given:
            # The first call: later ones may be given what it returned.
            return {"size": next(iter(self._given.values())), "from": "input"}
        return {"size": None, "from": "input"}


def _samples(batch: object, declared: object) -> int | None:
    """Samples in a batch: what the loader declared where the tensors agree, else their first size.

    They disagree at a last batch that is smaller. A batch may hold its samples in the second
    dimension (sequences, time first), so that the declaration is worth more than the first size.
    """
    first = None
    for count, tensor in enumerate(tensors_in(batch)):
        if tensor.dim() == 0:
            continue
        if first is None:
            first = int(tensor.shape[0])
        if isinstance(declared, int) and declared in tensor.shape:
            return declared
        if count > 100:
            break
    return first
