"""Tiny models with many zeros in their weights, behind passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array, LazyWeight
from optc.system.hardware.target import Target, known_targets
from tests.backends.tvm.engine_driver import SHAPE
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

#: A head of its own, and an MLP of more than one panel of K.
UNTIED = replace(SHAPE, tied=False, inner=320)
_V4 = known_targets()["x86-64-v4-vnni"]
#: The instruction set of sparse kernels. No kernel is compiled here, and no compiler loaded.
SPARSE = Target("v4-sparse", "cpu", (*_V4.features, "avx512_vbmi2"))


def pruned_model(pipeline: str, shape: Dense = UNTIED, zeros: float = 0.5) -> ir.Model:
    """The seeded model of a shape, behind the passes of ``pipeline``; before them, the smallest
    share ``zeros`` of each output channel of every matmul's weight was set to zero, also in an
    embedding that is the same tensor."""
    model = dense_model(shape)
    constants = {v: v.const_value for v in model.graph.initializers.values()}
    weights = {v: t for v, t in constants.items() if isinstance(t, LazyWeight)}
    pruned = {
        weight.read_rows: weight.map_rows(lambda rows: _pruned(rows, zeros), weight.dtype)
        for weight in weights.values()
        if weight.transposed
    }
    for value, weight in weights.items():
        if weight.read_rows in pruned:
            found = pruned[weight.read_rows]
            value.const_value = found if weight.transposed else found.transpose()
    pipeline_of(pipeline).run(model)
    return model


def _pruned(rows: Array, zeros: float) -> Array:
    ranks = np.argsort(np.argsort(np.abs(rows), axis=1), axis=1)
    return np.where(ranks < round(zeros * rows.shape[1]), np.float32(0), rows)
