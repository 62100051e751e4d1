"""The backward pass of fake tensors that claim to be on a device that does not exist.

Autograd's engine requires the device's context before it runs a node, and fails. The nodes
themselves work: here they are called one by one, in the engine's order (`engine.cpp`: among the
nodes whose gradients are complete, the latest one goes first).
"""

from __future__ import annotations

import heapq
from typing import Any

import torch

_MAX_NODES = 500_000


def run_backward(loss: torch.Tensor) -> None:
    """Runs `loss.backward()` for a scalar. Gradients end up in `.grad` of the leaves.

    Hooks are not called, and second derivatives are not supported.
    """
    root = loss.grad_fn
    if root is None:
        raise RuntimeError("the loss does not depend on anything that requires a gradient")
    pending = _dependencies(root)
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
                    inputs_of_successor = gradients.setdefault(successor, {})
                    known = inputs_of_successor.get(input_number)
                    # If a tensor was used twice, its gradients are added.
                    inputs_of_successor[input_number] = (
                        gradient if known is None else known + gradient
                    )
                pending[successor] -= 1
                if pending[successor] == 0:
                    order += 1
                    heapq.heappush(ready, (_priority(successor), order, successor))


def _dependencies(root: Any) -> dict[Any, int]:
    """Returns the number of nodes that pass a gradient to each node."""
    pending: dict[Any, int] = {root: 0}
    stack = [root]
    while stack:
        for successor, _ in stack.pop().next_functions:
            if successor is None:
                continue
            if successor not in pending:
                if len(pending) >= _MAX_NODES:
                    raise RuntimeError("the graph of this backward pass is too large")
                pending[successor] = 0
                stack.append(successor)
            pending[successor] += 1
    return pending


def _conformed(gradient: torch.Tensor, node: Any, input_number: int) -> torch.Tensor:
    """Does what the engine's `validate_outputs` does: sums over broadcast dimensions, and casts."""
    variable = getattr(node, "variable", None)
    metadata = variable if variable is not None else node._input_metadata[input_number]
    if gradient.shape != metadata.shape:
        gradient = gradient.sum_to_size(tuple(metadata.shape))
    return gradient if gradient.dtype == metadata.dtype else gradient.to(metadata.dtype)


def _priority(node: Any) -> int:
    # The engine accumulates a leaf's gradient immediately.
    return -(1 << 62) if hasattr(node, "variable") else -node._sequence_nr()


def _run(node: Any, gradients: dict[int, torch.Tensor]) -> tuple[Any, ...]:
    if not gradients:
        return ()
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        # AccumulateGrad keeps the first gradient without a copy.
        gradient = gradients[0]
        if leaf.grad is None:
            leaf.grad = gradient.detach()
        else:
            leaf.grad.add_(gradient)
        return ()
    inputs = [gradients.get(number) for number in range(len(node._input_metadata))]
    results = node(*inputs)
    return results if isinstance(results, tuple) else (results,)
