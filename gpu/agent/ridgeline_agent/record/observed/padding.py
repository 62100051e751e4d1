"""The share of padding in a model's input tokens: `observed.padding` of the manifest.

For embeddings with a padding index, their inputs are counted. For models without such an embedding,
the attention mask is used; without either, a value that ends rows as only padding does. Only
padding at the end of its row is counted, because elsewhere it could not be cut off.
"""

from __future__ import annotations

import inspect
import types
import weakref
from typing import Any

import torch
from torch import nn

from ...program.modules import ModuleTable
from ...program.sources import Sources

_MAX_INPUTS = 500
_MAX_ENTRIES = 64
# Only the first rows of a larger input are inspected.
_MAX_TOKENS = 1 << 22
# Arguments that mark padding, and whether they are true at padding rather than at tokens.
_MASKS = (
    ("attention_mask", False),
    ("src_key_padding_mask", True),
    ("key_padding_mask", True),
    ("padding_mask", True),
)

# A smaller embedding is one of segments or flags, which may also end rows.
_MIN_WORDS = 32

Place = tuple[int, int]
# How padding was detected, most reliable first.
BY_INDEX, BY_MASK, BY_ENDS = "padding_idx", "mask", "ends"


class _Input:
    """The input of one call of a module."""

    def __init__(self, module: nn.Module, place: Place, by: str, tokens: int, padding: Any) -> None:
        self.module = weakref.ref(module)
        self.place = place
        self.by = by
        self.tokens = tokens
        # A tensor: number of padding tokens, the padding value, and whether it is padding.
        self.padding = padding


class _Sum:
    """The calls of one module from one line."""

    def __init__(self, module: weakref.ref[nn.Module]) -> None:
        self.module = module
        self.tokens = self.padding = 0
        self.calls = self.calls_with_padding = 0
        self.values: set[int] = set()

    def add(self, tokens: int, result: list[int]) -> None:
        padding, value, is_padding = result
        self.tokens += tokens
        self.calls += 1
        if is_padding:
            self.padding += padding
            self.calls_with_padding += 1
            self.values.add(value)

    @property
    def is_sure(self) -> bool:
        """Whether most batches have the same padding value."""
        return len(self.values) == 1 and 2 * self.calls_with_padding > self.calls


class Padding:
    """Inspects the inputs of modules. On a GPU it does not synchronize until `settle`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._inputs: list[_Input] = []
        # By module, line, and detection method.
        self._sums: dict[tuple[int, Place, str], _Sum] = {}
        # By class: the positions of masks among the arguments.
        self._places: dict[type, dict[str, int]] = {}
        self._has_mask = False

    def entered(
        self, module: nn.Module, args: Any, kwargs: Any, frame: types.FrameType | None
    ) -> None:
        """A module is called."""
        if isinstance(module, nn.Embedding):
            index = module.padding_idx
            tokens = args[0] if args else kwargs.get("input")
            if not _is_plain(tokens) or tokens.is_floating_point():
                return
            if index is not None:
                self._add(BY_INDEX, module, tokens, index, frame)
            elif module.num_embeddings >= _MIN_WORDS and tokens.dim() == 2:
                self._add(BY_ENDS, module, tokens, None, frame)
        elif not self._has_mask and (kwargs or len(args) > 1):
            # Layers pass the mask on, so only the outermost call with a mask counts.
            places = self._places_of(type(module))
            for name, true_at_padding in _MASKS:
                place = places.get(name, len(args))
                mask = args[place] if place < len(args) else kwargs.get(name)
                # A mask of 0 and 1 or of booleans. A floating-point mask is one that is added to
                # scores.
                if _is_plain(mask) and mask.dim() == 2 and not mask.is_floating_point():
                    self._has_mask = True
                    self._add(BY_MASK, module, mask, 1 if true_at_padding else 0, frame)
                    return

    def left(self) -> None:
        """An outermost call ended."""
        self._has_mask = False

    def forget(self) -> None:
        """Discards all observations."""
        self._inputs.clear()
        self._sums.clear()
        self._has_mask = False

    def settle(self) -> None:
        """Reads the counts. Call it before anything is timed."""
        for one in self._inputs:
            key = (id(one.module()), one.place, one.by)
            self._sums.setdefault(key, _Sum(one.module)).add(one.tokens, one.padding.tolist())
        self._inputs.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """Returns `observed.padding` for the manifest."""
        result = {by for _, _, by in self._sums}
        most_reliable = next((by for by in (BY_INDEX, BY_MASK, BY_ENDS) if by in result), None)
        entries: list[dict[str, object]] = []
        for (_, (file, line), by), one in self._sums.items():
            module = one.module()
            index = None if module is None else table.index_of(module)
            if index is None or by != most_reliable or (by == BY_ENDS and not one.is_sure):
                continue
            # A simulated GPU computes nothing, so its counts may be any number.
            counts = {"tokens": one.tokens, "padding": max(0, min(one.padding, one.tokens))}
            at = {"file": file, "line": line}
            entries.append({"at": at, "module": index, **counts, "by": by})
        return entries[:_MAX_ENTRIES]

    def _places_of(self, kind: type) -> dict[str, int]:
        places = self._places.get(kind)
        if places is None:
            forward: Any = getattr(kind, "forward", None)
            code = getattr(inspect.unwrap(forward), "__code__", None)
            # Without `self`.
            names = () if code is None else code.co_varnames[1 : code.co_argcount]
            masks = {name for name, _ in _MASKS}
            places = {name: place for place, name in enumerate(names) if name in masks}
            self._places[kind] = places
        return places

    def _add(
        self,
        by: str,
        module: nn.Module,
        tokens: torch.Tensor,
        padding: int | None,
        frame: types.FrameType | None,
    ) -> None:
        place = self._sources.innermost(frame)
        if place is None or len(self._inputs) >= _MAX_INPUTS:
            return
        with torch.no_grad():
            rows = _rows(tokens.detach())
            if rows.numel():
                # Time may be the first dimension.
                has_columns = tokens.dim() == 2 and min(rows.shape) > 1
                candidates = [rows, rows.t()] if has_columns else [rows]
                result = _by_ends(candidates) if padding is None else _by_value(candidates, padding)
                self._inputs.append(_Input(module, place, by, rows.numel(), result))


def _is_plain(value: Any) -> bool:
    # Tensors of other classes need not have values.
    return type(value) is torch.Tensor and value.dim() >= 2 and value.numel() > 0


def _rows(tokens: torch.Tensor) -> torch.Tensor:
    length = tokens.shape[-1]
    return tokens.reshape(-1, length)[: max(1, _MAX_TOKENS // length)]


def _by_value(candidates: list[torch.Tensor], padding: int) -> torch.Tensor:
    """Counts the padding tokens at the end of rows. Returns the count, the padding value, and 1."""
    counts: list[torch.Tensor] = []
    for rows in candidates:
        is_padding = rows == padding
        # If columns are the rows, none of them may be only padding.
        is_padded = ~is_padding.all(-1).any() if counts else True
        counts.append(_at_ends(is_padding).sum() * is_padded)
    count = torch.stack(counts).max()
    return torch.stack([count, torch.full_like(count, padding), torch.ones_like(count)])


def _by_ends(candidates: list[torch.Tensor]) -> torch.Tensor:
    """Same as `_by_value` if the padding value is unknown."""
    result = [_by_ends_of(rows) for rows in candidates]
    return torch.where(result[0][2] > 0, result[0], result[-1])


def _by_ends_of(rows: torch.Tensor) -> torch.Tensor:
    # The value that ends most rows, if there is one.
    value = rows[:, -1].sort().values[rows.shape[0] // 2]
    is_padding = rows == value
    ends = _at_ends(is_padding).sum(-1)
    # Padding occurs nowhere else, leaves something of each row, and rows have several lengths.
    is_padded = (is_padding.sum() == ends.sum()) & (ends < rows.shape[1]).all()
    lengths = 1 + (ends.sort().values.diff() != 0).sum()
    is_padded &= lengths >= 3
    return torch.stack([ends.sum(), value.to(ends.dtype), is_padded.to(ends.dtype)])


def _at_ends(is_padding: torch.Tensor) -> torch.Tensor:
    return is_padding.flip(-1).to(torch.int32).cumprod(-1)
