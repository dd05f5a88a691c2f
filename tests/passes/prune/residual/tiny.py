"""A model of one layer, and what it gives with fewer channels, in NumPy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.weights import as_lazy
from tests.support.ir_text import f32, model_of

V, D, FF, EPSILON = 32, 12, 16, 0.05
TOKENS = np.random.default_rng(3).integers(0, V, (4, 96)).astype(np.int32)
SIGNATURE = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,32] logits)"
NODES = """
    e = Gather <axis: int = 0> (table, input_ids)
    n = RMSNormalization <axis: int = -1, epsilon: float = 0.05> (e, gamma)
    h = MatMul (n, up)
    a = Sigmoid (h)
    d = MatMul (a, down)
    r = Add (e, d)
    m = RMSNormalization <axis: int = -1, epsilon: float = 0.05> (r, last)
    logits = MatMul (m, head)"""
ARRAYS = {
    "table": f32(V, D) * np.linspace(1.5, 0.05, D, dtype=np.float32),
    "gamma": 1 + 0.3 * f32(D, seed=1),
    "up": f32(D, FF),
    "down": f32(FF, D) * np.linspace(1.0, 0.05, D, dtype=np.float32),
    "last": 1 + 0.3 * f32(D, seed=2),
}


def tiny_model(*, tied: bool) -> ir.Model:
    """The model; its head's weight is the table, or one of its own."""
    model = model_of(SIGNATURE, NODES, ARRAYS | {"head": head_of(tied)})
    table = model.graph.initializers["table"]
    table.const_value = as_lazy(ir.tensor(ARRAYS["table"], name="table"))
    if tied:
        model.graph.initializers["head"].const_value = table.const_value.transpose()
    return model


def head_of(tied: bool) -> np.ndarray:
    """The head's weight [D, V]."""
    head: np.ndarray = np.ascontiguousarray(ARRAYS["table"].T) if tied else f32(D, V, seed=4)
    return head


def normed(x: np.ndarray) -> np.ndarray:
    """x / rms(x) over D channels, of which some may be gone."""
    found: np.ndarray = x / np.sqrt((x * x).sum(-1, keepdims=True) / D + EPSILON)
    return found


def whole(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stream before both norms, in float64."""
    x = ARRAYS["table"].astype(np.float64)[tokens]
    h = (normed(x) * ARRAYS["gamma"]) @ ARRAYS["up"].astype(np.float64)
    return x, x + (1 / (1 + np.exp(-h))) @ ARRAYS["down"].astype(np.float64)


def components(tokens: np.ndarray) -> np.ndarray:
    """Principal components [D, D] of the stream as the norms leave it."""
    rows = np.concatenate([one.reshape(-1, D) for one in whole(tokens)])
    rows = rows / np.sqrt((rows * rows).mean(-1, keepdims=True))
    return np.linalg.svd(rows, full_matrices=False)[2].T
