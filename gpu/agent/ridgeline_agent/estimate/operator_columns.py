"""The operators of an iteration, as columns (docs/op-list.md, `signatures` and `ops`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .operator_recorder import (
    MAX_OPERATORS,
    MAX_SIGNATURES,
    PLACEMENT,
    computes,
    described,
    operator_name,
    tensors_of,
)

_NO_SIGNATURE = -1

_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr
_current_node: Callable[[], Any] = getattr(
    torch._C, "_current_autograd_node", lambda: None
)  # torch 2.0 lacks it


class OperatorColumns:
    """Collects operators, and maps backward operators to their forward operators."""

    def __init__(self) -> None:
        self.full = False
        self._signatures: list[dict[str, Any]] = []
        self._by_key: dict[Any, int] = {}
        # Signature, phase, stack and module of each operator. One list, because the time limit may
        # interrupt the program between two.
        self._operators: list[tuple[int, int, int, int]] = []
        # Stack and module of the operator that created a backward node, by sequence number.
        self._forward: dict[int, tuple[int, int]] = {}
        self._last_link = _sequence_number()
        self._last_backward = (-1, -1)

    def __len__(self) -> int:
        return len(self._operators)

    def is_linked(self) -> bool:
        """Whether no backward node was created since the last operator."""
        return _sequence_number() == self._last_link

    def link(self, stack: int, module: int) -> bool:
        """Links new backward nodes to the running operator. Returns whether there are any. Autograd
        creates a node with the next sequence number before it runs the operator.
        """
        number = _sequence_number()
        if number == self._last_link:
            return False
        for made in range(max(self._last_link, number - 16), number):
            self._forward[made] = (stack, module)
        self._last_link = number
        return True

    def in_backward(self, stack: int, module: int, at_call: int) -> tuple[int, int]:
        """Returns stack and module of an operator in a backward pass called at `at_call`."""
        if stack not in (at_call, -1):
            # The user's own code runs within the backward pass.
            return stack, module
        node = _current_node()
        if node is not None:
            # The node that accumulates a leaf's gradient has no number, and belongs to the previous
            # node.
            found = self._forward.get(node._sequence_nr(), self._last_backward)
            self._last_backward = found
            return found if found[0] >= 0 else (stack, module)
        return stack, module

    def add(
        self,
        func: Any,
        key: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        place: tuple[int, int, int],
    ) -> None:
        """Adds an operator. `place` is its phase, stack and module."""
        signature = self._by_key.get(key)
        if signature is None:
            signature = self._by_key[key] = self._describe(func, args, kwargs, result)
        if signature == _NO_SIGNATURE:
            return
        if len(self._operators) >= MAX_OPERATORS or len(self._signatures) > MAX_SIGNATURES:
            self.full = True
            return
        self._operators.append((signature, *place))

    def _describe(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> int:
        if not (computes(args) or computes(result)):
            return _NO_SIGNATURE
        signature: dict[str, Any] = {"op": operator_name(func), "in": described(args)}
        named = {
            name: described(value)
            for name, value in kwargs.items()
            if name not in PLACEMENT and value is not None
        }
        if named:
            signature["named"] = named
        signature["out"] = tensors_of(result)
        self._signatures.append(signature)
        return len(self._signatures) - 1

    def place(self, operator: int) -> tuple[int, int, int]:
        """Returns phase, stack and module of an operator; after the last one, those of the last."""
        at = min(operator, len(self._operators) - 1)
        return (4, -1, -1) if at < 0 else self._operators[at][1:]

    def stacks(self) -> set[int]:
        """Returns all stacks of the iteration."""
        return {stack for _, _, stack, _ in self._operators}

    def json(self) -> dict[str, Any]:
        """Returns `signatures` and `ops` of docs/op-list.md."""
        return {
            "signatures": self._signatures,
            "ops": {
                name: [operator[index] for operator in self._operators]
                for index, name in enumerate(("signature", "phase", "stack", "module"))
            },
        }
