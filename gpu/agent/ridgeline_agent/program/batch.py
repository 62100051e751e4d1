"""Finds the batch size: the number of samples in an iteration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .memory import tensors_in

# The first tensors of a batch suffice.
_MAX_TENSORS = 100
# A sampler may wrap another one that has the batch size.
_MAX_WRAPPERS = 4
# More iterations are not profiled.
_MAX_BEFORE = 256


class Samples(NamedTuple):
    """The number of samples, and whether all shapes agree on it."""

    size: int
    is_certain: bool


class BatchWatch:
    """Counts samples from loaders, a provider, or the inputs of outermost modules."""

    def __init__(self) -> None:
        self._loaded: dict[int, int] = {}
        self._samplers: dict[int, object] = {}
        self._given: dict[Hashable, int] = {}
        self._data_keys: set[Hashable] = set()
        self._seen: set[Hashable] = set()
        # Sequences whose time steps were inputs, by call and memory.
        self._sliced: set[Hashable] = set()
        self._loaded_is_certain = self._given_is_certain = True
        self._provided: int | None = None
        self._declared: set[int] = set()
        # Sources and sizes of the batches of earlier iterations: they are whole if this one is the
        # rest of an epoch, and of several sizes if episodes are.
        self._before: list[tuple[Hashable, int]] = []

    @property
    def has_loader(self) -> bool:
        """Whether a loader returned a batch."""
        return bool(self._loaded)

    def next_iteration(self) -> BatchWatch:
        """Returns the watch for the next iteration."""
        following = BatchWatch()
        following._provided = self._provided
        following._declared = self._declared
        following._before = [*self._before, self._source()][-_MAX_BEFORE:]
        return following

    def provided(self, size: int) -> None:
        """A provider was called with this batch size."""
        self._provided = size

    def declared_by(self, loader: object) -> None:
        """A loader returned a batch, in this iteration or before."""
        size = declared_batch_size(loader)
        if size is not None:
            self._declared.add(size)

    def loaded(self, loader: Any, batch: object) -> None:
        """A loader returned a batch. Batches of one loader add up, because of gradient
        accumulation.
        """
        samples = samples_in(loader, batch)
        if samples is not None:
            self._loaded_is_certain &= samples.is_certain
            self._loaded[id(loader)] = self._loaded.get(id(loader), 0) + samples.size
            self._samplers[id(loader)] = getattr(loader, "_index_sampler", None)

    def given(self, key: Hashable, inputs: object) -> None:
        """An outermost module was called; `key` identifies the module and the calling lines.

        Calls from the same lines add up, with three exceptions: calls with the same memory, because
        optimizers such as LBFGS evaluate a batch several times; inputs that were computed from an
        earlier call, as in an integrator, a recurrent network or a decoder that runs step by step;
        and the time steps `x[0]`, `x[1]` and so on of one sequence.
        """
        tensors = [tensor for tensor in _some_tensors(inputs) if tensor.dim() > 0]
        first = next(iter(tensors), None)
        if first is None:
            self._given_arrays(key, inputs)
            return
        # A floating-point vector is one sample, such as the state of a game, rather than many
        # scalars.
        if first.dim() == 1 and first.is_floating_point():
            return
        if first.grad_fn is None:
            self._data_keys.add(key)
            if key in self._given and any(tensor.grad_fn is not None for tensor in tensors):
                # The hidden state of an earlier call, or something else that was computed.
                self._given_is_certain = False
                return
        elif key in self._data_keys:
            return
        data, hidden_rows = _without_transforms(first)
        memory = (key, _memory_of(data))
        if memory not in self._seen:
            self._seen.add(memory)
            sequence = _sequence_of(data)
            if sequence is not None:
                if (key, sequence) in self._sliced:
                    # Or a microbatch of a stacked batch.
                    self._given_is_certain = False
                    return
                self._sliced.add((key, sequence))
            samples = _common_size([tuple(tensor.shape) for tensor in tensors])
            # `vmap` may run over samples, or over tasks or models of many samples each.
            is_one_each = hidden_rows == 1 or samples.size == 1
            # A constraint on a parameter, as of a Gaussian process, or a generated image.
            is_data = not isinstance(data, torch.nn.Parameter)
            self._given_is_certain &= samples.is_certain and is_one_each and is_data
            self._given[key] = self._given.get(key, 0) + samples.size * hidden_rows

    def _given_arrays(self, key: Hashable, inputs: object) -> None:
        """An outermost module was called with arrays, which it converts itself."""
        shapes = list(itertools.islice(_array_shapes(inputs), _MAX_TENSORS))
        if shapes:
            self._data_keys.add(key)
            self._given_is_certain &= len(set(shape[0] for shape in shapes)) == 1
            samples = _common_size(shapes)
            self._given[key] = self._given.get(key, 0) + samples.size

    def replayed(self, captured: BatchWatch) -> None:
        """A CUDA graph with captured module calls was replayed."""
        self._given_is_certain &= captured._given_is_certain
        for key, size in captured._given.items():
            self._given[key] = self._given.get(key, 0) + size

    def json(self) -> dict[str, object] | None:
        """Returns `batch` for the manifest."""
        if self._provided is not None:
            return {"size": self._provided, "from": "provider", "certain": True}
        whole, is_whole = self._whole()
        if self._loaded:
            largest = self._largest_loader()
            # With 16 labeled and 112 unlabeled samples, the batch size may be any of them.
            agree = len(set(self._loaded.values())) == 1 or len(self._declared) == 1
            is_certain = self._loaded_is_certain and (is_whole or whole in self._declared)
            return {
                "size": whole,
                "from": "loader" if agree else "loaders",
                "certain": is_certain and agree,
                "samples_per_epoch": _samples_per_epoch(self._samplers.get(largest)),
            }
        if self._given:
            first = next(iter(self._given.values()))
            # With one sample, an agent may only have chosen an action.
            size = whole if first > 1 else self._largest_data()
            # Positive and negative samples may be in one input, or a batch may be split.
            is_loaders = not self._declared or size in self._declared
            is_certain = self._given_is_certain and is_loaders and size == first and is_whole
            return {"size": size, "from": "input", "certain": is_certain}
        return {"size": None, "from": "input", "certain": False}

    def _whole(self) -> tuple[int, bool]:
        """Returns the size of a whole batch, and whether this iteration had it.

        The last batch of an epoch has the rest of the samples. Episodes of different lengths have
        a mean length.
        """
        source, size = self._source()
        sizes = [size, *(before for other, before in self._before if other == source)]
        largest = max(sizes)
        if size <= 1 or sizes.count(largest) * 2 >= len(sizes):
            whole = size if size <= 1 else largest
            return whole, whole == size
        return round(sum(sizes) / len(sizes)), False

    def _source(self) -> tuple[Hashable, int]:
        """Returns the loader or the call whose samples are counted, and their number."""
        if self._loaded:
            largest = self._largest_loader()
            return largest, self._loaded[largest]
        # The first call, because later ones may get its results as inputs.
        return next(iter(self._given.items()), (None, 0))

    def _largest_loader(self) -> int:
        """Several loaders usually return parts of the same samples (images here, texts there)."""
        return max(self._loaded, key=lambda loader: self._loaded[loader])

    def _largest_data(self) -> int:
        """Returns the most samples that a module got as data, at least 1."""
        return max([1, *(self._given.get(key, 0) for key in self._data_keys)])


def _without_transforms(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Returns the tensor that `torch.func.grad` and `vmap` wrap, and the product of the dimensions
    that `vmap` hides.
    """
    rows = 1
    functorch: Any = getattr(torch._C, "_functorch", None)
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", lambda _: False)
    while is_wrapped(tensor):
        inner = functorch.get_unwrapped(tensor)
        if functorch.is_batchedtensor(tensor):
            rows *= int(inner.shape[functorch.maybe_get_bdim(tensor)])
        tensor = inner
    return tensor, rows


def _sequence_of(tensor: torch.Tensor) -> Hashable:
    """Identifies the sequence that a tensor may be a time step of: `x` for `x[0]`, if that has
    features of samples. Images or numbers of tokens are rather a microbatch of stacked ones.
    """
    base = tensor._base
    is_step = tensor.dim() == 2 and tensor.is_floating_point()
    if not is_step or base is None or base.dim() <= tensor.dim():
        return None
    return _memory_of(base)


def _samples_per_epoch(batches: Any) -> int | None:
    """Returns the number of samples in a loader's epoch, or None if unknown. Calling `len` runs the
    program's own code, so this is done after the run.
    """
    try:
        samples = len(batches.sampler)
        size = batches.batch_size
        drops_last = bool(batches.drop_last)
    except Exception:
        return None
    if drops_last and isinstance(size, int) and size > 0:
        samples -= samples % size
    return samples


def _memory_of(tensor: torch.Tensor) -> Hashable:
    """Identifies a tensor's memory, and distinguishes it from later allocations at the same
    address.
    """
    try:
        storage = StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        # A sparse tensor has no storage, so every call counts.
        return object()
    return (storage, tensor.storage_offset(), tuple(tensor.shape))


def samples_in(loader: Any, batch: object) -> Samples | None:
    """Returns the number of samples in a batch of this loader's iterator: the declared batch size
    if any shape has it, otherwise what the shapes suggest.

    No shape has it if the last batch is smaller. The samples may be in the second dimension
    (sequences with time first), so the declared size takes precedence over the first dimension. The
    exception is 1, if it is no first dimension: each item of the data set may be a whole batch.
    """
    shapes = [tuple(tensor.shape) for tensor in _some_tensors(batch) if tensor.dim() > 0]
    declared = declared_batch_size(loader)
    if declared == 1 and shapes and all(shape[0] != 1 for shape in shapes):
        return _most_frequent(shapes)
    if declared is not None and any(declared in shape for shape in shapes):
        return Samples(declared, True)
    if declared is not None and declared in _list_lengths(batch):
        return Samples(declared, True)
    return _common_size(shapes) if shapes else None


def declared_batch_size(loader: Any) -> int | None:
    """Returns the declared batch size of a loader or its iterator, if there is one."""
    sampler = getattr(loader, "_index_sampler", None)
    for _ in range(_MAX_WRAPPERS):
        size = getattr(sampler, "batch_size", None)
        if isinstance(size, int):
            return size
        sampler = getattr(sampler, "sampler", None) or getattr(sampler, "batch_sampler", None)
    return None


def _list_lengths(batch: object) -> set[int]:
    """Returns the possible numbers of samples in a batch that is not stacked: a list of samples, or
    a list for each part of them (`zip(*batch)`), such as images of different sizes and their boxes.
    """
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    if not isinstance(batch, (list, tuple)):
        return set()
    lengths = {len(part) for part in batch if isinstance(part, (list, tuple))}
    is_of_samples = not any(isinstance(part, torch.Tensor) for part in batch)
    return lengths | {len(batch)} if is_of_samples else lengths


def _some_tensors(value: object) -> list[torch.Tensor]:
    return list(itertools.islice(tensors_in(value), _MAX_TENSORS))


def _array_shapes(inputs: object) -> Iterator[tuple[int, ...]]:
    """Yields the shapes of NumPy's arrays of at least two dimensions in a call's arguments. A
    vector may be one sample, such as the state of a game.
    """
    for values in inputs if isinstance(inputs, tuple) else ():
        for value in values.values() if isinstance(values, dict) else values:
            if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) > 1:
                yield tuple(value.shape)


def _common_size(shapes: list[tuple[int, ...]]) -> Samples:
    """Returns the batch size that the tensors' shapes suggest. If their first dimensions differ, it
    is not the batch: for sequences it may be time, for boxes in images their number, for the
    letters of words the words of all sentences.
    """
    first = shapes[0][0]
    if all(shape[0] == first for shape in shapes):
        return Samples(first, True)
    common = (size for size in shapes[0] if size > 1 and all(size in shape for shape in shapes))
    # Sentences by words: their letters have one row for each word.
    flattened = {
        shape[0] * shape[1] for shape in shapes if len(shape) > 1 and shape[0] > 1 < shape[1]
    }
    whole = [shape for shape in shapes if shape[0] not in flattened]
    largest = max(whole or shapes, key=math.prod)
    return Samples(next(common, largest[0]), False)


def _most_frequent(shapes: list[tuple[int, ...]]) -> Samples:
    """Returns the first dimension that most of the shapes have, in any place."""

    def count(size: int) -> int:
        return sum(size in shape for shape in shapes)

    return Samples(max((shape[0] for shape in shapes), key=count), False)
