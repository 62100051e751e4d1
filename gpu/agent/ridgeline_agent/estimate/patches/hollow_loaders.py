"""Data loaders of an estimate: batches of the right shape with as little loading as possible.

One sample is really loaded, and collated as often as the batch has samples. For a loader with its
own collate function, different samples are loaded if that is fast. If it is not, and for iterable
data sets, the recorded batches of a run are used.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json import loads
from time import monotonic
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, dataloader, default_collate

from ...program.batch import declared_batch_size
from ...program.batch_structure import NotDescribable, describe, make
from ...record.loader_batches import VERSION

_MAX_FILE_BYTES = 4 * 2**20
# Time limit for loading samples that may differ from the first.
_SECONDS_FOR_SAMPLES = 0.1

_Note = Callable[[str], None]
_Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


class HollowLoaders:
    """Replaces the iterators of data loaders."""

    def __init__(self, batches: str | None, tensor: _Make, note: _Note) -> None:
        self._tensor = tensor
        self._note = note
        self._recorded = _read(batches, note)
        # Data sets in the order of their first use, as in the recording.
        self._order: list[object] = []

    def install(self) -> None:
        """From now on, loaders start no workers and load as little as possible."""
        loaders: Any = DataLoader
        # An instance's bound method would not be bound to the loader.
        loaders._get_iterator = lambda loader: self.iterator(loader)

        def in_order(self: Any) -> Iterator[int]:
            # Shuffling a large data set would take longer than everything else.
            return iter(range(self.num_samples))

        RandomSampler.__iter__ = in_order  # type: ignore[method-assign]

    def iterator(self, loader: Any) -> Any:
        """Returns the replacement for `iter(loader)`."""
        recorded = self._entry(loader.dataset)
        if isinstance(loader.dataset, IterableDataset):
            if recorded is None or recorded["batch"] is None:
                return _in_this_process(loader)
            return _Batches(loader, lambda: self._from(recorded, loader))
        return _Batches(loader, self._maker(loader, recorded))

    def _entry(self, dataset: object) -> dict[str, Any] | None:
        """Returns the recorded entry of this data set."""
        at = next((i for i, known in enumerate(self._order) if known is dataset), None)
        if at is None:
            at = len(self._order)
            self._order.append(dataset)
        entry = self._recorded[at] if at < len(self._recorded) else None
        return entry if entry is not None and entry["dataset"] == type(dataset).__name__ else None

    def _maker(self, loader: Any, recorded: dict[str, Any] | None) -> Callable[[], Any]:
        """Returns a function that creates batches. The structure of the first one is reused for the
        others.
        """
        first: list[Any] = []

        def next_batch() -> Any:
            if not first:
                batch = self._first(loader, recorded)
                try:
                    first.append(describe(batch))
                except NotDescribable:
                    return batch
                return batch
            return make(first[0], self._tensor, None, None)

        return next_batch

    def _first(self, loader: Any, recorded: dict[str, Any] | None) -> Any:
        dataset, collate = loader.dataset, loader.collate_fn
        began = monotonic()
        if loader.batch_sampler is None:
            return collate(dataset[next(iter(loader.sampler))])
        indices = _indices(loader)
        try:
            samples = [dataset[indices[0]]]
            if collate is not default_collate:
                for index in indices[1:]:
                    if monotonic() - began > _SECONDS_FOR_SAMPLES:
                        if recorded is not None and recorded["batch"] is not None:
                            return self._from(recorded, loader)
                        self._note("a batch is estimated from part of its samples")
                        break
                    samples.append(dataset[index])
            return collate([samples[at % len(samples)] for at in range(len(indices))])
        except Exception:
            if recorded is None or recorded["batch"] is None:
                raise
            # Loading code may require values that do not exist.
            return self._from(recorded, loader)

    def _from(self, recorded: dict[str, Any], loader: Any) -> Any:
        return make(
            recorded["batch"], self._tensor, recorded["batch_size"], declared_batch_size(loader)
        )


def _indices(loader: Any) -> list[Any]:
    """Returns the indices of the first batch."""
    size = declared_batch_size(loader)
    if size is not None and type(loader.batch_sampler) is torch.utils.data.BatchSampler:
        # The batch size may be larger than the data set.
        count = min(size, len(loader.dataset))
        return list(range(count)) if count else list(next(iter(loader.batch_sampler)))
    return list(next(iter(loader.batch_sampler)))


class _Batches(dataloader._BaseDataLoaderIter):
    """An iterator over batches that are created instead of loaded."""

    def __init__(self, loader: Any, make_batch: Callable[[], Any]) -> None:
        # Not the base's constructor, which creates samplers and generators. The attributes that its
        # `__next__` uses are set here.
        self._dataset = loader.dataset
        self._dataset_kind = dataloader._DatasetKind.Map
        self._index_sampler = loader._index_sampler
        self._sampler_iter = iter(())
        self._num_yielded = 0
        self._profile_name = "a hollow loader"
        self._make = make_batch
        self._length = _length(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._num_yielded = 0

    def _next_data(self) -> Any:
        if self._length is not None and self._num_yielded >= self._length:
            raise StopIteration
        return self._make()

    def __len__(self) -> int:
        return 0 if self._length is None else self._length


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _in_this_process(loader: Any) -> Any:
    """Returns the loader's own iterator, without workers."""
    kept = dict(vars(loader))
    vars(loader).update(num_workers=0, timeout=0, pin_memory=False)
    try:
        return dataloader._SingleProcessDataLoaderIter(loader)
    finally:
        for name in ("num_workers", "timeout", "pin_memory"):
            vars(loader)[name] = kept[name]


def _read(path: str | None, note: _Note) -> list[dict[str, Any]]:
    """Returns the entries of a `batch.json`. If it cannot be read, adds a note and returns none."""
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            content = loads(file.read(_MAX_FILE_BYTES))
        if content["version"] != VERSION:
            raise ValueError(f"unsupported version {content['version']}")
        entries = content["loaders"]
        for entry in entries:
            _ = (entry["dataset"], entry["batch_size"], entry["batch"])
        return list(entries)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        note(f"the recorded batches cannot be read: {error}")
        return []
