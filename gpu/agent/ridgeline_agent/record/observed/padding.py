"""How many of the tokens that a model is given are padding: `observed.padding` of the manifest.

Of embeddings that name their padding, what they are given is counted; of models without such an
embedding, the mask that says which tokens count; without either, what ends rows as only padding
does. Only padding at the end of its row is counted: elsewhere it could not be cut off.
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

# An embedding of fewer rows is one of segments or flags, which end rows as well.
_FEWEST_WORDS = 32

Place = tuple[int, int]
# What tells the padding, the surest first.
BY_INDEX, BY_MASK, BY_ENDS = "padding_idx", "mask", "ends"


class _Input:
    """What one call of a module was given."""

    def __init__(self, module: nn.Module, place: Place, by: str, tokens: int, padding: Any) -> None:
        self.module = weakref.ref(module)
        self.place = place
        self.by = by
        self.tokens = tokens
        # How many of them are padding, what padding is, and whether it is.
        self.padding = padding


class _Sum:
    """The calls of one module on one line."""

    def __init__(self, module: weakref.ref[nn.Module]) -> None:
        self.module = module
        self.tokens = self.padding = 0
        self.calls = self.calls_with_padding = 0
        self.values: set[int] = set()

    def add(self, tokens: int, told: list[int]) -> None:
        padding, value, is_padding = told
        self.tokens += tokens
        self.calls += 1
        if is_padding:
            self.padding += padding
            self.calls_with_padding += 1
            self.values.add(value)

    @property
    def is_sure(self) -> bool:
        """Whether most batches have the same padding."""
        return len(self.values) == 1 and 2 * self.calls_with_padding > self.calls


class Padding:
    """Looks at what modules are given. On a GPU it waits for nothing until `settle`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._inputs: list[_Input] = []
        # By module, line, and what tells the padding.
        self._sums: dict[tuple[int, Place, str], _Sum] = {}
        # By class: the places of masks among the arguments.
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
            elif module.num_embeddings >= _FEWEST_WORDS and tokens.dim() == 2:
                self._add(BY_ENDS, module, tokens, None, frame)
        elif not self._has_mask and (kwargs or len(args) > 1):
            # Layers hand the same mask on, so the outermost call that has one stands for all.
            places = self._places_of(type(module))
            for name, true_at_padding in _MASKS:
                place = places.get(name, len(args))
                mask = args[place] if place < len(args) else kwargs.get(name)
                # A mask of 0 and 1 or of flags. One that is added to scores is a floating one.
                if _is_plain(mask) and mask.dim() == 2 and not mask.is_floating_point():
                    self._has_mask = True
                    self._add(BY_MASK, module, mask, 1 if true_at_padding else 0, frame)
                    return

    def left(self) -> None:
        """An outermost call ended."""
        self._has_mask = False

    def forget(self) -> None:
        """What was seen counts for nothing."""
        self._inputs.clear()
        self._sums.clear()
        self._has_mask = False

    def settle(self) -> None:
        """Reads what was counted. Call it before anything is timed."""
        for one in self._inputs:
            key = (id(one.module()), one.place, one.by)
            self._sums.setdefault(key, _Sum(one.module)).add(one.tokens, one.padding.tolist())
        self._inputs.clear()

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """`observed.padding` of the manifest."""
        told = {by for _, _, by in self._sums}
        surest = next((by for by in (BY_INDEX, BY_MASK, BY_ENDS) if by in told), None)
        entries: list[dict[str, object]] = []
        for (_, (file, line), by), one in self._sums.items():
            module = one.module()
            index = None if module is None else table.index_of(module)
            if index is None or by != surest or (by == BY_ENDS and not one.is_sure):
                continue
            counts = {"tokens": one.tokens, "padding": one.padding}
            at = {"file": file, "line": line}
            entries.append({"at": at, "module": index, **counts, "by": by})
        return entries[:_MOST_ENTRIES]

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
        if place is None or len(self._inputs) >= _MOST_INPUTS:
            return
        with torch.no_grad():
            rows = _rows(tokens.detach())
            if rows.numel():
                # Time may come first.
                has_columns = tokens.dim() == 2 and min(rows.shape) > 1
                either = [rows, rows.t()] if has_columns else [rows]
                told = _by_ends(either) if padding is None else _by_value(either, padding)
                self._inputs.append(_Input(module, place, by, rows.numel(), told))


def _is_plain(value: Any) -> bool:
    # Tensors of other classes need not have values.
    return type(value) is torch.Tensor and value.dim() >= 2 and value.numel() > 0


def _rows(tokens: torch.Tensor) -> torch.Tensor:
    length = tokens.shape[-1]
    return tokens.reshape(-1, length)[: max(1, _MOST_TOKENS // length)]


def _by_value(either: list[torch.Tensor], padding: int) -> torch.Tensor:
    """How many tokens end their row as padding; what padding is, and that it is."""
    counts: list[torch.Tensor] = []
    for rows in either:
        is_padding = rows == padding
        # Of columns that are taken for rows none is empty.
        is_it = ~is_padding.all(-1).any() if counts else True
        counts.append(_at_ends(is_padding).sum() * is_it)
    count = torch.stack(counts).max()
    return torch.stack([count, torch.full_like(count, padding), torch.ones_like(count)])


def _by_ends(either: list[torch.Tensor]) -> torch.Tensor:
    """The same where nothing says what padding is."""
    told = [_by_ends_of(rows) for rows in either]
    return torch.where(told[0][2] > 0, told[0], told[-1])


def _by_ends_of(rows: torch.Tensor) -> torch.Tensor:
    # What ends most rows, if anything does.
    value = rows[:, -1].sort().values[rows.shape[0] // 2]
    is_padding = rows == value
    ends = _at_ends(is_padding).sum(-1)
    # Padding is nowhere else, leaves something of each row, and rows are of several lengths.
    is_it = (is_padding.sum() == ends.sum()) & (ends < rows.shape[1]).all()
    lengths = 1 + (ends.sort().values.diff() != 0).sum()
    is_it &= lengths >= 3
    return torch.stack([ends.sum(), value.to(ends.dtype), is_it.to(ends.dtype)])


def _at_ends(is_padding: torch.Tensor) -> torch.Tensor:
    return is_padding.flip(-1).to(torch.int32).cumprod(-1)
