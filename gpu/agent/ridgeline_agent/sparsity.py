"""How many zeros activations hold, by module: measured once, in the first iteration, which is not
timed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .modules import ModuleTable

# Modules whose outputs are 0 where their inputs are negative.
SPARSE_TYPES = frozenset({nn.ReLU, nn.ReLU6})
_MOST_MODULES = 1000
# Of a larger output the first samples are looked at.
_MOST_ELEMENTS = 1 << 20


class Sparsity:
    """The share of zeros in the first output of each module."""

    def __init__(self) -> None:
        # By the identity of the module, which is kept so that the identity stays its own: the
        # module, zeros as a tensor, and of how many elements.
        self._counts: dict[int, tuple[nn.Module, torch.Tensor, int]] = {}
        self._shares: list[tuple[nn.Module, float]] = []

    def gave(self, module: nn.Module, output: Any) -> None:
        """A module of SPARSE_TYPES returned."""
        if id(module) in self._counts or len(self._counts) >= _MOST_MODULES:
            return
        # Tensors of other classes need not have values: a tracer's have none.
        if type(output) is not torch.Tensor or output.dim() == 0 or output.numel() == 0:
            return
        samples = _MOST_ELEMENTS * output.shape[0] // output.numel()
        if samples == 0:
            return
        with torch.no_grad():
            part = output.detach()[:samples]
            # Not read yet: on a GPU that would wait for it.
            self._counts[id(module)] = (module, part.numel() - part.count_nonzero(), part.numel())

    def settle(self) -> None:
        """Reads what was counted. Call it before anything is timed."""
        self._shares += [(module, int(zeros) / of) for module, zeros, of in self._counts.values()]
        self._counts.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """`sparsity` of the manifest."""
        found = ((table.index_of_called(module), share) for module, share in self._shares)
        return [{"module": index, "zeros": share} for index, share in found if index is not None]
