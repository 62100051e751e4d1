"""Records the structure of a run's batches from data loaders, for estimates."""

from __future__ import annotations

import os
from json import dumps
from typing import Any

from ..program.batch import declared_batch_size
from ..program.batch_structure import NotDescribable, describe
from ..system.private_files import private

NAME = "batch.json"
VERSION = 1
_MAX_LOADERS = 16


class LoaderBatches:
    """One entry per data set, in the order of their first use."""

    def __init__(self) -> None:
        # By object ID of the data set, which is kept alive so that its ID is not reused.
        self._entries: dict[int, tuple[object, dict[str, Any]]] = {}

    def loaded(self, loader: Any, batch: object, measured: bool) -> None:
        """A loader's iterator returned a batch: the first one, or one in a measured iteration."""
        dataset = getattr(loader, "_dataset", None)
        known = id(dataset) in self._entries
        if (known and not measured) or (not known and len(self._entries) >= _MAX_LOADERS):
            return
        try:
            structure = describe(batch)
        except NotDescribable:
            structure = None
        entry = {
            "dataset": type(dataset).__name__,
            "batch_size": declared_batch_size(loader),
            "batch": structure,
        }
        self._entries[id(dataset)] = (dataset, entry)

    def save(self, folder: str) -> None:
        """Writes `batch.json` if there was a loader."""
        if not self._entries:
            return
        entries = [entry for _, entry in self._entries.values()]
        path = os.path.join(folder, NAME)
        with open(path, "w", encoding="utf-8", opener=private) as file:
            file.write(dumps({"version": VERSION, "loaders": entries}))
