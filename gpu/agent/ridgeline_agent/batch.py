"""How many samples an iteration takes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .memory import tensors_in


class BatchWatch:
    """Counts samples from loaders, a provider, or what the outermost modules are given."""

    def __init__(self) -> None:
        self._loaded: dict[int, int] = {}
        self._samplers: dict[int, object] = {}
        self._given: dict[Hashable, int] = {}
        self._of_data: set[Hashable] = set()
        self._seen: set[Hashable] = set()
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
        size = samples_in(loader, batch)
        if size is not None:
            self._loaded[id(loader)] = self._loaded.get(id(loader), 0) + size
            self._samplers[id(loader)] = getattr(loader, "_index_sampler", None)

    def given(self, key: Hashable, inputs: object) -> None:
        """An outermost module was called; `key` tells module and line.

        Calls of the same line add up, unless they are given the very same memory: an optimizer
        such as LBFGS evaluates one batch many times; or what an earlier call led to, as an
        integrator or a decoder does that goes step by step.
        """
        first = next((tensor for tensor in tensors_in(inputs) if tensor.dim() > 0), None)
        # A floating vector is one sample, such as the state of a game, rather than many scalars.
        if first is None or (first.dim() == 1 and first.is_floating_point()):
            return
        if first.grad_fn is None:
            self._of_data.add(key)
        elif key in self._of_data:
            return
        memory = (key, _memory_of(first))
        if memory not in self._seen:
            self._seen.add(memory)
            self._given[key] = self._given.get(key, 0) + _rows(first)

    def replayed(self, captured: BatchWatch) -> None:
        """A CUDA graph was replayed that captured calls of modules."""
        for key, size in captured._given.items():
            self._given[key] = self._given.get(key, 0) + size

    def json(self) -> dict[str, object] | None:
        """`batch` of the manifest."""
        if self._provided is not None:
            return {"size": self._provided, "from": "provider"}
        if self._loaded:
            # Several loaders usually give parts of the same samples (images here, texts there).
            largest = max(self._loaded, key=lambda loader: self._loaded[loader])
            return {
                "size": self._loaded[largest],
                "from": "loader",
                "samples_per_epoch": _samples_per_epoch(self._samplers.get(largest)),
            }
        if self._given:
            # The first call: later ones may be given what it returned.
            return {"size": next(iter(self._given.values())), "from": "input"}
        return {"size": None, "from": "input"}


def _rows(tensor: torch.Tensor) -> int:
    """The first size of a tensor, times those of the dimensions that `torch.func.vmap` hides."""
    rows = int(tensor.shape[0])
    functorch: Any = getattr(torch._C, "_functorch", None)
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", lambda _: False)
    while is_wrapped(tensor):
        inner = functorch.get_unwrapped(tensor)
        if functorch.is_batchedtensor(tensor):
            rows *= int(inner.shape[functorch.maybe_get_bdim(tensor)])
        tensor = inner
    return rows


def _samples_per_epoch(batches: Any) -> int | None:
    """How many samples a loader gives until it ends, by its batch sampler; nothing where it does
    not know. Its length is the program's own code, so it is asked for when the run is over.
    """
    try:
        samples = len(batches.sampler)
        size = batches.batch_size
        whole_batches_alone = bool(batches.drop_last)
    except Exception:
        return None
    if whole_batches_alone and isinstance(size, int) and size > 0:
        samples -= samples % size
    return samples


def _memory_of(tensor: torch.Tensor) -> Hashable:
    """Which memory a tensor shows, told apart from what takes the same address later."""
    try:
        storage = StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        # A sparse tensor has no storage, and counts at every call.
        return object()
    return (storage, tensor.storage_offset(), tuple(tensor.shape))


def samples_in(loader: Any, batch: object) -> int | None:
    """How many samples a batch of this loader's iterator holds."""
    return _samples(batch, getattr(getattr(loader, "_index_sampler", None), "batch_size", None))


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
