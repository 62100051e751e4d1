"""The backward pass of fake tensors that say they are on a device which is not there.

Autograd's engine looks for the device's context before it runs a node, and fails. The nodes
themselves run: here they are called one by one, in the engine's order (`engine.cpp`: the node
that was made last goes first, among those whose gradients are complete).
"""

from __future__ import annotations

import heapq
from typing import Any

import torch

_MOST_NODES = 500_000


def run_backward(loss: torch.Tensor) -> None:
    """`loss.backward()` for a scalar. Gradients end in `.grad` of the leaves.

    Hooks are not called, and there is no second derivative.
    """
    root = loss.grad_fn
    if root is None:
        raise RuntimeError("the loss does not depend on anything that requires a gradient")
    waiting = _dependencies(root)
    gradients: dict[Any, dict[int, torch.Tensor]] = {root: {0: torch.ones_like(loss)}}
    order = 0
    ready: list[tuple[int, int, Any]] = [(0, order, root)]
    with torch.no_grad():
        while ready:
            _, _, node = heapq.heappop(ready)
            results = _run(node, gradients.pop(node, {}))
            for index, (successor, input_number) in enumerate(node.next_functions):
                if successor is None:
                    continue
                gradient = results[index] if index < len(results) else None
                if gradient is not None:
                    gradient = _conformed(gradient, successor, input_number)
                    held = gradients.setdefault(successor, {})
                    known = held.get(input_number)
                    # Where a tensor was used twice, its gradients are added.
                    held[input_number] = gradient if known is None else known + gradient
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    order += 1
                    heapq.heappush(ready, (_priority(successor), order, successor))


def _dependencies(root: Any) -> dict[Any, int]:
    """How many nodes hand a gradient to each."""
    waiting: dict[Any, int] = {root: 0}
    stack = [root]
    while stack:
        for successor, _ in stack.pop().next_functions:
            if successor is None:
                continue
            if successor not in waiting:
                if len(waiting) >= _MOST_NODES:
                    raise RuntimeError("the graph of this backward pass is too large")
                waiting[successor] = 0
                stack.append(successor)
            waiting[successor] += 1
    return waiting


def _conformed(gradient: torch.Tensor, node: Any, input_number: int) -> torch.Tensor:
    """What the engine's `validate_outputs` does: sum over what was broadcast, cast to the type."""
    variable = getattr(node, "variable", None)
    wanted = variable if variable is not None else node._input_metadata[input_number]
    if gradient.shape != wanted.shape:
        gradient = gradient.sum_to_size(tuple(wanted.shape))
    return gradient if gradient.dtype == wanted.dtype else gradient.to(wanted.dtype)


def _priority(node: Any) -> int:
    # The engine adds a gradient to its leaf at once.
    return -(1 << 62) if hasattr(node, "variable") else -node._sequence_nr()


def _run(node: Any, gradients: dict[int, torch.Tensor]) -> tuple[Any, ...]:
    if not gradients:
        return ()
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        # AccumulateGrad keeps the first gradient as it is.
        gradient = gradients[0]
        if leaf.grad is None:
            leaf.grad = gradient.detach()
        else:
            leaf.grad.add_(gradient)
        return ()
    inputs = [gradients.get(number) for number in range(len(node._input_metadata))]
    results = node(*inputs)
    return results if isinstance(results, tuple) else (results,)
