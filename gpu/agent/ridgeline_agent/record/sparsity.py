"""The share of zeros in activations, by module: measured once, in the first iteration, which is not
timed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..program.modules import ModuleTable
from .transforms import is_transformed

# Modules whose output is 0 for negative inputs.
SPARSE_TYPES = frozenset({nn.ReLU, nn.ReLU6})
# The maximum number of outputs over all modules. A module may be called several times.
_MAX_OUTPUTS = 2000
# Only the first samples of a larger output are inspected.
_MAX_ELEMENTS = 1 << 20


class Sparsity:
    """The share of zeros in each module's output in one iteration."""

    def __init__(self) -> None:
        # The module, its zeros as a tensor, and the number of elements.
        self._counts: list[tuple[nn.Module, torch.Tensor, int]] = []
        # By object ID of the module, which is kept alive so that its ID is not reused: the module,
        # its zeros, and the number of elements.
        self._sums: dict[int, tuple[nn.Module, int, int]] = {}

    def gave(self, module: nn.Module, output: Any) -> None:
        """A module of SPARSE_TYPES returned."""
        if len(self._counts) >= _MAX_OUTPUTS:
            return
        # Tensors of other classes need not have values; those of a tracer do not.
        if type(output) is not torch.Tensor or output.dim() == 0 or output.numel() == 0:
            return
        if is_transformed():
            return
        samples = _MAX_ELEMENTS * output.shape[0] // output.numel()
        if samples == 0:
            return
        with torch.no_grad():
            part = output.detach()[:samples]
            # Not read yet, because on a GPU that would wait.
            self._counts.append((module, part.numel() - part.count_nonzero(), part.numel()))

    def settle(self) -> None:
        """Reads the counts. Call it before anything is timed."""
        for module, zeros, elements in self._counts:
            _, zeros_before, elements_before = self._sums.get(id(module), (module, 0, 0))
            sums = (module, zeros_before + int(zeros), elements_before + elements)
            self._sums[id(module)] = sums
        self._counts.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """Returns `sparsity` for the manifest."""
        found = [(table.index_of_called(module), zeros / of) for module, zeros, of in self.sums()]
        return [{"module": index, "zeros": share} for index, share in found if index is not None]

    def sums(self) -> list[tuple[nn.Module, int, int]]:
        """Returns each module with its zeros and its number of elements."""
        return list(self._sums.values())
