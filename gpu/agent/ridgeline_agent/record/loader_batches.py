"""Records the structure of the batches that a run takes from its loaders, for estimates."""

from __future__ import annotations

import json
import os
from typing import Any

from ..program.batch import declared_batch_size
from ..program.batch_structure import NotDescribable, describe
from ..system.private_files import private

NAME = "batch.json"
VERSION = 1
_MOST_LOADERS = 16


class LoaderBatches:
    """One entry for each data set, in the order in which they were first loaded from."""

    def __init__(self) -> None:
        # By the identity of the data set, which is kept so that the identity stays its own.
        self._entries: dict[int, tuple[object, dict[str, Any]]] = {}

    def loaded(self, loader: Any, batch: object, measured: bool) -> None:
        """A loader's iterator gave a batch: the first, or one of an iteration that is measured."""
        dataset = getattr(loader, "_dataset", None)
        known = id(dataset) in self._entries
        if (known and not measured) or (not known and len(self._entries) >= _MOST_LOADERS):
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
        """Writes `batch.json`, where there was a loader."""
        if not self._entries:
            return
        entries = [entry for _, entry in self._entries.values()]
        path = os.path.join(folder, NAME)
        with open(path, "w", encoding="utf-8", opener=private) as file:
            file.write(json.dumps({"version": VERSION, "loaders": entries}))
