"""The data that an estimate collects of one iteration, and the file that it writes
(docs/op-list.md).
"""

from __future__ import annotations

import os
import types
from json import dumps
from typing import Any, NamedTuple

import torch

from ..program.batch import BatchWatch
from ..program.memory import MemoryWatch
from ..program.modules import ModuleTable, optimizers_json
from ..program.sources import Sources
from ..system.private_files import private
from .operator_columns import OperatorColumns
from .peak_memory import MemoryEvents

VERSION = 1
NAME = "ops.json"

# The original function, before it is patched (estimate/patches/no_side_effects.py).
_replace = os.replace


class Iteration(NamedTuple):
    """The collected data of one iteration."""

    columns: OperatorColumns
    table: ModuleTable
    batch: BatchWatch
    memory: MemoryWatch
    events: MemoryEvents

    def json(
        self,
        sources: Sources,
        optimizers: list[torch.optim.Optimizer],
        frame: types.FrameType | None,
    ) -> dict[str, Any]:
        """Returns the content of the list. Call it after the iteration, because reading a frame's
        variables may keep their values alive.
        """
        modules = self.table.json(sources, optimizers, frame)
        return {
            **self.columns.json(),
            "modules": modules,
            "batch": self.batch.json(),
            "optimizers": optimizers_json(optimizers, self.table),
            "memory": self.events.json(self.memory, self.columns.place),
        }


def write(folder: str, content: dict[str, Any]) -> None:
    """Writes the list atomically."""
    path = os.path.join(folder, NAME)
    with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
        file.write(dumps(content, ensure_ascii=True, allow_nan=False))
    _replace(path + ".part", path)
