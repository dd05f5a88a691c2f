"""Layers of LSTM, GRU and plain RNNs over sequences whose length differs from call to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from onnxscript import opset23 as op
from torch._decomp import decomposition_table
from torch._subclasses.fake_impls import op_implementations_dict

_ATEN = torch.ops.aten
_LAYERS = (_ATEN.lstm.input, _ATEN.gru.input, _ATEN.rnn_tanh.input, _ATEN.rnn_relu.input)


@contextmanager
def steps_untold() -> Iterator[None]:
    """While it lasts, shapes of recurrent layers are found without computing a single step. To
    find them, PyTorch runs each step in turn, which fixes their number to that of the example."""
    kernels = [dict(layer.py_kernels) for layer in _LAYERS]
    steps = {layer: decomposition_table[layer] for layer in _LAYERS}
    try:
        for layer, kept in zip(_LAYERS, kernels, strict=True):
            _set(layer, dict.fromkeys(kept, _shapes))
            decomposition_table[layer] = _shapes
            op_implementations_dict[layer] = _fake
        yield
    finally:
        decomposition_table.update(steps)
        for layer, kept in zip(_LAYERS, kernels, strict=True):
            _set(layer, kept)
            op_implementations_dict.pop(layer, None)  # PyTorch may have taken it away


def _set(layer: Any, kernels: dict[Any, Any]) -> None:
    layer.py_kernels.clear()
    layer.py_kernels.update(kernels)
    layer._dispatch_cache.clear()


def _fake(mode: Any, layer: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    with mode:
        return _shapes(*args, **kwargs)


def _shapes(
    x: torch.Tensor, hx: torch.Tensor | Sequence[torch.Tensor], *options: Any
) -> tuple[torch.Tensor, ...]:
    """Shapes of outputs and last states; the last ``options`` are bidirectional and batch_first."""
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    channels = states[0].shape[-1] * (2 if options[-2] else 1)
    given = x.new_empty([x.shape[0], x.shape[1], channels])
    return given, *(torch.empty_like(one) for one in states)


def recurrent(activation: str) -> Callable[..., Any]:
    """Plain RNNs, which PyTorch's exporter writes down step by step."""

    def layers(  # noqa: PLR0913 - what PyTorch gives
        x: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        ways = 2 if bidirectional else 1
        each = 4 if has_biases else 2
        states = [op.Split(hx, num_outputs=num_layers, axis=0)] if num_layers > 1 else [hx]
        states = list(states[0]) if num_layers > 1 else states
        if batch_first:
            x = op.Transpose(x, perm=[1, 0, 2])
        last = []
        for layer, state in enumerate(states):
            own = [params[(layer * ways + way) * each :][:each] for way in range(ways)]
            weights = [_stacked([one[index] for one in own]) for index in range(2)]
            if has_biases:
                both = [op.Concat(one[2], one[3], axis=0) for one in own]
                weights.append(_stacked(both))
            y, end = op.RNN(
                x,
                *weights,
                *([] if has_biases else [None]),
                None,
                state,
                activations=[activation] * ways,
                direction="bidirectional" if bidirectional else "forward",
                hidden_size=int(own[0][1].shape[1]),
            )
            rows = op.Transpose(y, perm=[0, 2, 1, 3])  # steps, batch, ways, channels
            x = op.Reshape(rows, op.Constant(value_ints=[0, 0, -1]))
            last.append(end)
        found = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
        return found, op.Concat(*last, axis=0) if len(last) > 1 else last[0]

    return layers


def _stacked(parts: Sequence[Any]) -> Any:
    rows = [op.Unsqueeze(one, op.Constant(value_ints=[0])) for one in parts]
    return op.Concat(*rows, axis=0) if len(rows) > 1 else rows[0]
