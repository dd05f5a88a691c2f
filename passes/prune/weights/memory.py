"""Memory that pruning is predicted to take beside what there is before it."""

from __future__ import annotations

import onnx_ir as ir

from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.working_bytes import propagating
from optc.passes.prune.weights.methods import Method

_FLOAT32, _FLOAT64 = 4, 8
#: Float32 copies of a weight [N, K] and float64 ones of its Hessian [K, K] that are alive at once.
_COPIES = {"magnitude": (4, 0), "wanda": (5, 2), "sparsegpt": (5, 3), "admm": (10, 5)}


def pruning(model: ir.Model, text: TextShape, method: Method, value_bytes: int) -> int:
    """Peak of the pass on ``model``, in the dense form, with values of so many bytes."""
    rows, squares = _COPIES["admm" if method.refit else method.name]

    def changing(n: int, k: int) -> int:
        return rows * _FLOAT32 * n * k + squares * _FLOAT64 * k * k

    return propagating(model, text, value_bytes, _FLOAT32, changing)
