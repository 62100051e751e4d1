"""How many zeros activations hold, by module: measured once, in the first iteration, which is not
timed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..program.modules import ModuleTable
from .transforms import is_transformed

# Modules whose outputs are 0 where their inputs are negative.
SPARSE_TYPES = frozenset({nn.ReLU, nn.ReLU6})
# A module may be called several times; of all modules together so many outputs are looked at.
_MOST_OUTPUTS = 2000
# Of a larger output the first samples are looked at.
_MOST_ELEMENTS = 1 << 20


class Sparsity:
    """The share of zeros in what each module gave in one iteration."""

    def __init__(self) -> None:
        # The module, its zeros as a tensor, and of how many elements.
        self._counts: list[tuple[nn.Module, torch.Tensor, int]] = []
        # By the identity of the module, which is kept so that the identity stays its own: the
        # module, its zeros, and of how many elements.
        self._sums: dict[int, tuple[nn.Module, int, int]] = {}

    def gave(self, module: nn.Module, output: Any) -> None:
        """A module of SPARSE_TYPES returned."""
        if len(self._counts) >= _MOST_OUTPUTS:
            return
        # Tensors of other classes need not have values: a tracer's have none.
        if type(output) is not torch.Tensor or output.dim() == 0 or output.numel() == 0:
            return
        if is_transformed():
            return
        samples = _MOST_ELEMENTS * output.shape[0] // output.numel()
        if samples == 0:
            return
        with torch.no_grad():
            part = output.detach()[:samples]
            # Not read yet: on a GPU that would wait for it.
            self._counts.append((module, part.numel() - part.count_nonzero(), part.numel()))

    def settle(self) -> None:
        """Reads what was counted. Call it before anything is timed."""
        for module, zeros, elements in self._counts:
            _, zeros_before, elements_before = self._sums.get(id(module), (module, 0, 0))
            sums = (module, zeros_before + int(zeros), elements_before + elements)
            self._sums[id(module)] = sums
        self._counts.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """`sparsity` of the manifest."""
        found = [(table.index_of_called(module), zeros / of) for module, zeros, of in self.sums()]
        return [{"module": index, "zeros": share} for index, share in found if index is not None]

    def sums(self) -> list[tuple[nn.Module, int, int]]:
        """Each module with its zeros and of how many elements."""
        return list(self._sums.values())
