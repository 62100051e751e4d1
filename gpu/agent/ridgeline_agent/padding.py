"""How many of the tokens that a model is given are padding: `observed.padding` of the manifest.

Of embeddings that name their padding, what they are given is counted; of models without such an
embedding, the mask that says which tokens count. Only padding at the end of its row is: elsewhere
it could not be cut off.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch
from torch import nn

from .modules import ModuleTable
from .sources import Sources

_MOST_INPUTS = 500
_MOST_ENTRIES = 64
# Of a larger input the first rows are looked at.
_MOST_TOKENS = 1 << 22
# Arguments that name the padding, and whether they are true at padding rather than at tokens.
_MASKS = (
    ("attention_mask", False),
    ("src_key_padding_mask", True),
    ("key_padding_mask", True),
    ("padding_mask", True),
)

Place = tuple[int, int]
# The module, the line that calls it, tokens, and how many of them are padding.
_Input = tuple["weakref.ref[nn.Module]", Place, int, torch.Tensor]


class Padding:
    """Looks at what modules are given. On a GPU it waits for nothing until `settle`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._embeddings: list[_Input] = []
        self._masks: list[_Input] = []
        # By module and line: the module, tokens, padding.
        self._sums: dict[tuple[int, Place, bool], tuple[weakref.ref[nn.Module], int, int]] = {}
        self._has_mask = False

    def entered(
        self, module: nn.Module, args: Any, kwargs: Any, frame: types.FrameType | None
    ) -> None:
        """A module is called."""
        if isinstance(module, nn.Embedding):
            index = module.padding_idx
            tokens = args[0] if args else kwargs.get("input")
            if index is not None and _is_plain(tokens) and not tokens.is_floating_point():
                self._add(self._embeddings, module, tokens, index, frame)
        elif kwargs and not self._has_mask:
            # Layers hand the same mask on, so the outermost call that has one stands for all.
            for name, true_at_padding in _MASKS:
                mask = kwargs.get(name)
                # A mask of 0 and 1 or of flags. One that is added to scores is a floating one.
                if _is_plain(mask) and mask.dim() == 2 and not mask.is_floating_point():
                    self._has_mask = True
                    padding = 1 if true_at_padding else 0
                    self._add(self._masks, module, mask, padding, frame)
                    return

    def left(self) -> None:
        """An outermost call ended."""
        self._has_mask = False

    def forget(self) -> None:
        """What was seen counts for nothing."""
        self._embeddings.clear()
        self._masks.clear()
        self._sums.clear()
        self._has_mask = False

    def settle(self) -> None:
        """Reads what was counted. Call it before anything is timed."""
        for inputs, is_mask in ((self._embeddings, False), (self._masks, True)):
            for module, place, tokens, padding in inputs:
                key = (id(module()), place, is_mask)
                _, tokens_before, padding_before = self._sums.get(key, (module, 0, 0))
                self._sums[key] = (module, tokens_before + tokens, padding_before + int(padding))
            inputs.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """`observed.padding` of the manifest."""
        has_embedding = any(not is_mask for _, _, is_mask in self._sums)
        entries: list[dict[str, object]] = []
        for (_, (file, line), is_mask), (reference, tokens, padding) in self._sums.items():
            module = reference()
            index = None if module is None else table.index_of(module)
            if index is None or (is_mask and has_embedding):
                continue
            at = {"file": file, "line": line}
            entries.append({"at": at, "module": index, "tokens": tokens, "padding": padding})
        return entries[:_MOST_ENTRIES]

    def _add(
        self,
        inputs: list[_Input],
        module: nn.Module,
        tokens: torch.Tensor,
        padding: int,
        frame: types.FrameType | None,
    ) -> None:
        place = self._sources.innermost(frame)
        if place is None or len(inputs) >= _MOST_INPUTS:
            return
        with torch.no_grad():
            looked_at, count = _padding_at_ends(tokens.detach(), padding)
        if looked_at:
            inputs.append((weakref.ref(module), place, looked_at, count))


def _is_plain(value: Any) -> bool:
    # Tensors of other classes need not have values.
    return type(value) is torch.Tensor and value.dim() >= 2 and value.numel() > 0


def _padding_at_ends(tokens: torch.Tensor, padding: int) -> tuple[int, torch.Tensor]:
    """How many tokens were looked at, and how many of them end their row as padding."""
    length = tokens.shape[-1]
    rows = tokens.reshape(-1, length)[: max(1, _MOST_TOKENS // length)]
    is_padding = rows == padding
    count = _at_ends(is_padding)
    if tokens.dim() == 2 and min(rows.shape) > 1:
        # Time may come first; then a row is a column, and none of them is empty.
        columns = _at_ends(is_padding.t()) * ~is_padding.all(0).any()
        count = torch.maximum(count, columns)
    return rows.numel(), count


def _at_ends(is_padding: torch.Tensor) -> torch.Tensor:
    return is_padding.flip(-1).to(torch.int32).cumprod(-1).sum()
