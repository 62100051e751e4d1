"""Memory that CPU operators allocate internally, which no shape shows.

oneDNN computes in its own layouts: a convolution copies its input and weight into blocks, writes
its result in blocks, and copies it back (mkldnn/Conv.cpp in torch). The simultaneous sizes were
read from the allocations of torch 2.15 on x86. Workspaces of cuDNN and cuBLAS depend on the
algorithms that they choose on the device, and are not included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .operator_results import NewTensor

# oneDNN reads an image with up to four channels without blocking.
_MIN_BLOCKED_CHANNELS = 4
_FLOAT = 4


def transient_bytes(name: str, args: tuple[Any, ...]) -> int:
    """Returns the peak bytes of an operator on the CPU while it runs, including its results; 0 if
    that is no more than the results.
    """
    count = _TRANSIENT_BYTES.get(name)
    if count is None or not torch.backends.mkldnn.is_available():
        return 0
    return count(*args)


def _convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, *rest: Any) -> int:
    if _is_channels_last(x) or x.dtype is not torch.float32:
        return 0
    result = _result_elements(x, weight, stride, padding, *rest)
    return _FLOAT * max(_blocked(x) + int(weight.numel()) + result, 2 * result)


def _convolution_backward(gradient: Any, x: Any, weight: Any, *rest: Any) -> int:
    if _is_channels_last(x) or x.dtype is not torch.float32:
        return 0
    wants_input, wants_weight = rest[-1][0], rest[-1][1]
    result, image, kernel = int(gradient.numel()), int(x.numel()), int(weight.numel())
    for_input = result + kernel + image if wants_input else 0
    kept = image if wants_input else 0
    for_weight = kept + max(result + _blocked(x) + kernel, 2 * kernel) if wants_weight else 0
    return _FLOAT * max(for_input, for_weight)


def _lstm(x: Any, *weights_and_rest: Any) -> int:
    weights, gates = _weights_and_gates(x, *weights_and_rest[:2])
    output = gates // 4
    return _FLOAT * (weights + gates + output) + lstm_workspace(x, weights_and_rest[1])


def _weights_and_gates(x: Any, input_weight: Any, hidden_weight: Any) -> tuple[int, int]:
    weights = int(input_weight.numel() + hidden_weight.numel())
    return weights, int(x.shape[0] * x.shape[1] * input_weight.shape[0])


def _lstm_backward(x: Any, *weights_and_rest: Any) -> int:
    weights, gates = _weights_and_gates(x, *weights_and_rest[:2])
    return _FLOAT * (3 * weights + gates + 2 * int(x.numel()))


_TRANSIENT_BYTES: dict[str, Callable[..., int]] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mkldnn_rnn_layer": _lstm,
    "aten::mkldnn_rnn_layer_backward": _lstm_backward,
}


def with_workspace(name: str, args: tuple[Any, ...], result: Any) -> Any:
    """Adds the workspace to a result whose meta kernel leaves it out."""
    if name == "aten::mkldnn_rnn_layer" and len(result) == 4:
        size = lstm_workspace(args[0], args[2])
        workspace = NewTensor((size,), (1,), torch.uint8, False)
        return (*result[:3], workspace)
    return result


def lstm_workspace(x: Any, hidden_weight: Any) -> int:
    """Returns the bytes that an LSTM layer stores for its backward pass: states of the wider of
    input and hidden layer, and gates. Fitted to oneDNN's requests for over 30 shapes, within 2%.
    """
    length, batch, width = x.shape
    hidden = hidden_weight.shape[1]
    states = 6 * max(width, hidden) + 4 * hidden
    # oneDNN pads rows whose ends would map to the same cache line.
    padding_bytes = 128 if hidden % 256 == 0 else 16 if hidden % 64 == 0 else 0
    steps = length * (5 * hidden + padding_bytes)
    return int(_FLOAT * batch * ((length + 1) * states + steps))


def _blocked(x: Any) -> int:
    return int(x.numel()) if x.shape[1] >= _MIN_BLOCKED_CHANNELS else 0


def _is_channels_last(x: Any) -> bool:
    return bool(x.dim() == 4 and x.stride(1) == 1 and x.shape[1] > 1)


def _result_elements(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any
) -> int:
    out_padding, groups = rest
    count = x.shape[0] * (weight.shape[1] * groups if transposed else weight.shape[0])
    for axis, size in enumerate(x.shape[2:]):
        extent = dilation[axis % len(dilation)] * (weight.shape[2 + axis] - 1) + 1
        step, pad = stride[axis % len(stride)], padding[axis % len(padding)]
        if transposed:
            count *= (size - 1) * step - 2 * pad + extent + out_padding[axis % len(out_padding)]
        else:
            count *= (size + 2 * pad - extent) // step + 1
    return int(count)
