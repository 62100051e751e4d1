"""How many samples an iteration takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .memory import tensors_in

# Of a batch with more tensors, the first ones say enough.
_MOST_TENSORS = 100
# A sampler may wrap another one, which has the batch size.
_MOST_WRAPPERS = 4


class Samples(NamedTuple):
    """How many samples there are, and whether no shape says otherwise."""

    size: int
    is_certain: bool


class BatchWatch:
    """Counts samples from loaders, a provider, or what the outermost modules are given."""

    def __init__(self) -> None:
        self._loaded: dict[int, int] = {}
        self._samplers: dict[int, object] = {}
        self._given: dict[Hashable, int] = {}
        self._of_data: set[Hashable] = set()
        self._seen: set[Hashable] = set()
        self._loaded_is_certain = self._given_is_certain = True
        self._provided: int | None = None
        self._declared: set[int] = set()

    @property
    def has_loader(self) -> bool:
        """Whether a loader gave something."""
        return bool(self._loaded)

    def next_iteration(self) -> BatchWatch:
        """What watches the next iteration."""
        following = BatchWatch()
        following._provided = self._provided
        following._declared = self._declared
        return following

    def provided(self, size: int) -> None:
        """A provider was asked for inputs of this batch size."""
        self._provided = size

    def declared_by(self, loader: object) -> None:
        """A loader gave something, in this iteration or before."""
        size = declared_batch_size(loader)
        if size is not None:
            self._declared.add(size)

    def loaded(self, loader: Any, batch: object) -> None:
        """A loader gave a batch. Those of one loader add up: gradients may be accumulated."""
        samples = samples_in(loader, batch)
        if samples is not None:
            self._loaded_is_certain &= samples.is_certain
            self._loaded[id(loader)] = self._loaded.get(id(loader), 0) + samples.size
            self._samplers[id(loader)] = getattr(loader, "_index_sampler", None)

    def given(self, key: Hashable, inputs: object) -> None:
        """An outermost module was called; `key` tells module and line.

        Calls of the same line add up, unless they are given the very same memory: an optimizer
        such as LBFGS evaluates one batch many times; or what an earlier call led to, as an
        integrator or a decoder does that goes step by step.
        """
        tensors = [tensor for tensor in _some_tensors(inputs) if tensor.dim() > 0]
        first = next(iter(tensors), None)
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
            samples = _agreed([tuple(tensor.shape) for tensor in tensors])
            self._given_is_certain &= samples.is_certain
            self._given[key] = self._given.get(key, 0) + samples.size * _hidden_rows(first)

    def replayed(self, captured: BatchWatch) -> None:
        """A CUDA graph was replayed that captured calls of modules."""
        self._given_is_certain &= captured._given_is_certain
        for key, size in captured._given.items():
            self._given[key] = self._given.get(key, 0) + size

    def json(self) -> dict[str, object] | None:
        """`batch` of the manifest."""
        if self._provided is not None:
            return {"size": self._provided, "from": "provider", "certain": True}
        if self._loaded:
            # Several loaders usually give parts of the same samples (images here, texts there).
            largest = max(self._loaded, key=lambda loader: self._loaded[loader])
            return {
                "size": self._loaded[largest],
                "from": "loader",
                "certain": self._loaded_is_certain,
                "samples_per_epoch": _samples_per_epoch(self._samplers.get(largest)),
            }
        if self._given:
            # The first call: later ones may be given what it returned.
            size = next(iter(self._given.values()))
            # Positive and negative samples may be in one input, or a batch be given in parts.
            is_loaders = not self._declared or size in self._declared
            is_certain = self._given_is_certain and is_loaders
            return {"size": size, "from": "input", "certain": is_certain}
        return {"size": None, "from": "input", "certain": False}


def _hidden_rows(tensor: torch.Tensor) -> int:
    """The product of the dimensions that `torch.func.vmap` hides."""
    rows = 1
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


def samples_in(loader: Any, batch: object) -> Samples | None:
    """How many samples a batch of this loader's iterator holds: what the loader declares, where a
    shape has it, and else what the shapes say.

    No shape has it at a last batch that is smaller. A batch may hold its samples in the second
    dimension (sequences, time first), so that the declaration is worth more than the first size.
    """
    shapes = [tuple(tensor.shape) for tensor in _some_tensors(batch) if tensor.dim() > 0]
    declared = declared_batch_size(loader)
    if declared is not None and any(declared in shape for shape in shapes):
        return Samples(declared, True)
    return _agreed(shapes) if shapes else None


def declared_batch_size(loader: Any) -> int | None:
    """The batch size of a loader or of its iterator, where one is declared."""
    sampler = getattr(loader, "_index_sampler", None)
    for _ in range(_MOST_WRAPPERS):
        size = getattr(sampler, "batch_size", None)
        if isinstance(size, int):
            return size
        sampler = getattr(sampler, "sampler", None) or getattr(sampler, "batch_sampler", None)
    return None


def _some_tensors(value: object) -> list[torch.Tensor]:
    return list(itertools.islice(tensors_in(value), _MOST_TENSORS))


def _agreed(shapes: list[tuple[int, ...]]) -> Samples:
    """What the tensors of a batch have in common. The first size is not the batch where they differ
    in it: of sequences it may be time, and of the boxes in images it is their number.
    """
    first = shapes[0][0]
    if all(shape[0] == first for shape in shapes):
        return Samples(first, True)
    common = (size for size in shapes[0] if size > 1 and all(size in shape for shape in shapes))
    largest = max(shapes, key=math.prod)
    return Samples(next(common, largest[0]), False)
