"""How much pruning weights is predicted to compute."""

from __future__ import annotations

import onnx_ir as ir

from optc.passes.prune.weights.methods import Method
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import gptq_rounding, inputs_of, observing, propagating
from optc.pipeline.work import Work

#: Steps of ADMM until a mask stands still, and of conjugate gradients until a row is solved: what
#: weights of the example take (`benchmarks.proof.plan_check`).
_ADMM, _GRADIENTS = 35, 30
#: Element-wise operations on a weight in a step of each.
_ADMM_STEPS, _GRADIENT_STEPS = 15, 32
#: What comparing weights takes, of each: all of a weight, or every few inputs of a row.
_MASK_STEPS, _PATTERN_STEPS = 20, 65
#: Multiply-adds of eigenvalues and vectors, as multiples of K cubed.
_EIGEN = 8.0


def pruning_work(
    model: ir.Model,
    text: TextShape,
    method: Method,
    products: str,
    *,
    corrected: bool,
    patterned: bool,
) -> Work:
    """The pass on ``model``, in the dense form.

    Args:
        model: Dense form.
        text: What is run through it.
        method: How weights are pruned.
        products: How layers are multiplied.
        corrected: Whether weights are corrected for the drift of their inputs.
        patterned: Whether of every few inputs of a row some stay.
    """
    work = Work()
    if method.reads_inputs and corrected:
        work = propagating(model, text, None, (products, products), gptq=False)
    elif method.reads_inputs:  # two runs, which see what pruned layers make of their inputs
        work = observing(model, text, hessians=True) + observing(model, text, hessians=False)
    mask = _PATTERN_STEPS if patterned else _MASK_STEPS
    for k, rows in inputs_of(model):
        work += _changed(sum(rows), k, method, mask)
    return work


def _changed(rows: int, columns: int, method: Method, mask: int) -> Work:
    """Layers that read one input, pruned as one weight [N, K]; a comparison of its weights takes so
    many steps of each."""
    weights, cubed = float(rows * columns), float(columns) ** 3
    work = Work(steps=mask * weights)
    if method.name == "admm":
        work += Work(
            float32=(1 + 2 * _ADMM) * weights * columns,
            float64=_EIGEN * cubed,
            steps=_ADMM * (_ADMM_STEPS + mask) * weights,
        )
    if method.name == "sparsegpt":
        work += gptq_rounding(rows, columns, rows) + Work(float64=cubed / 3)
    if method.refit or method.name == "admm":
        work += Work(
            float32=_GRADIENTS * weights * columns, steps=_GRADIENTS * _GRADIENT_STEPS * weights
        )
    return work
