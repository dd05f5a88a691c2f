"""Memory that trainings and backward passes are predicted to take. No PyTorch is imported here.

What counts cannot be known in advance of PyTorch's allocations is fitted to measured peaks (ADR
0136).
"""

from __future__ import annotations

import math
from itertools import takewhile

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.graph import width
from optc.ir.linear import head_of
from optc.ir.tensors import model_tensors

#: Logits of a slice: 16 MiB in float32; a few times that while they are compared.
SLICE_LOGITS = 1 << 22
#: Logits, their logarithms of probabilities, and the gradients of both, in float32.
_OF_A_LOGIT = 16
#: A process that has imported a model, PyTorch included; and what PyTorch takes beside that to run
#: (both measured).
_IMPORTED, _RUNNING = 306 << 20, 10 << 20
#: Values kept for the backward pass and the gradients of a layer, over all values between nodes.
_KEPT_SHARE = 1.35
#: Activations of windows that run together: 512 MiB in float32.
ACTIVATION_BYTES = 512 << 20
#: Bytes of a trained weight: itself, its gradient, and two moments of it.
TRAINED = 16
#: Of a rounded one also its code, the rounded value, and the gradient of that.
ROUNDED = 25
#: Of one that stays beside LoRA: itself, the sum, and the gradient of that.
BESIDE_LORA = 12
_FLOAT32 = 4


def training_bytes(
    student: ir.Model, teacher: ir.Model, window: int, batch: int, of_a_weight: int = TRAINED
) -> int:
    """A whole process that trains a student, in the steps' own peak.

    Args:
        student: Dense form, whatever its weights are.
        teacher: Dense form.
        window: Tokens of a window.
        batch: Windows of a step.
        of_a_weight: Bytes of a weight of the student with all that belongs to it.
    """
    tokens = window * min(batch, windows_together(window, all_width(student)))
    running = backward_bytes(student, tokens) - _FLOAT32 * weight_count(student)
    weights = _FLOAT32 * weight_count(teacher) + of_a_weight * weight_count(student)
    return _IMPORTED + weights + running


def check_training(
    needed: int,
    limit: int,
    *,
    where: str = "--max-ram",
    hint: str = "allow more, or give a smaller --batch",
) -> None:
    """Check that a training is predicted to stay within ``limit`` bytes.

    Args:
        needed: What is predicted (`training_bytes`), and what other processes take beside it.
        limit: 0 is none.
        where: Of the error.
        hint: Of the error.

    Raises:
        InputError: It is not; says what is predicted.
    """
    if 0 < limit < needed:
        raise InputError(
            f"the training is predicted to need {needed:,} bytes of memory, "
            f"but {limit:,} are allowed",
            where=where,
            hint=hint,
        )


def windows_together(window: int, values: int) -> int:
    """The number of windows that run together, of ``window`` tokens with ``values`` values each."""
    return max(1, ACTIVATION_BYTES // max(1, _FLOAT32 * window * values))


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
