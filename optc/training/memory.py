"""Memory that trainings and backward passes are predicted to take. No PyTorch is imported here.

What counts cannot be known in advance of PyTorch's allocations is fitted to measured peaks (ADR
0136).
"""

from __future__ import annotations

import math
from itertools import takewhile

import onnx_ir as ir

from optc.ir.graph import width
from optc.ir.linear import head_of
from optc.ir.tensors import model_tensors

#: Logits of a slice: 16 MiB in float32; a few times that while they are compared.
SLICE_LOGITS = 1 << 22
#: Logits, their logarithms of probabilities, and the gradients of both, in float32.
_OF_A_LOGIT = 16
#: What PyTorch takes to run, where it is imported already (measured).
_RUNNING = 10 << 20
#: Values kept for the backward pass and the gradients of a layer, over all values between nodes.
_KEPT_SHARE = 1.35
_FLOAT32 = 4


def backward_bytes(model: ir.Model, tokens: int) -> int:
    """A run of the model forwards and backwards, its weights in float32 included.

    Args:
        model: Dense form.
        tokens: That run together.
    """
    values = math.ceil(_KEPT_SHARE * _FLOAT32 * tokens * kept_width(model))
    logits = min(SLICE_LOGITS, tokens * (width(model.graph.outputs[0]) or 0))
    return _RUNNING + _FLOAT32 * weight_count(model) + values + _OF_A_LOGIT * logits


def weight_count(model: ir.Model) -> int:
    """Weights of a dense form; those that several layers share count once."""
    return sum(math.prod(one.shape) for one in model_tensors(model))


def all_width(model: ir.Model) -> int:
    """Values of a token between all nodes."""
    return sum(width(value) or 0 for node in model.graph for value in node.outputs)


def kept_width(model: ir.Model) -> int:
    """The same without logits, which are never held for all rows at once."""
    head = head_of(model)
    ahead = takewhile(lambda node: head is None or node is not head.matmul, model.graph)
    return sum(width(value) or 0 for node in ahead for value in node.outputs)
