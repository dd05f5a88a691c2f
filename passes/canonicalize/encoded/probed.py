"""The effect of what lies between queries and an encoder's states and their softmax: by numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.spelled.region import BATCH, MORE_STATES, ForeignError, region_of

#: Tokens of a probe.
_TOKENS = 5


def shows_all(graph: ir.Graph, mask: ir.Value) -> None:
    """Do nothing if a mask shows all states to each token, whatever it is computed of.

    Raises:
        ForeignError: It does not, or is computed of more than sizes of inputs.
    """
    found = region_of(graph, mask, None).run(graph, _TOKENS, {})
    if found.dtype == np.bool_:
        found = ~found
    if found.any():
        raise ForeignError("a mask hides states, or is added to them")


def scale_of(graph: ir.Graph, scores: ir.Value, products: ir.Value, heads: int) -> float:
    """The factor of products f32[B, heads, tokens, states] in scores, which are nothing else.

    Raises:
        ForeignError: They are something else.
    """
    region = region_of(graph, scores, products)
    states = dims(products)[-1]
    count = states if isinstance(states, int) else _TOKENS + MORE_STATES
    shape = (BATCH, heads, _TOKENS, count)
    rng = np.random.default_rng(0)
    given = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 2, shape)
    none, some = (
        np.asarray(region.run(graph, _TOKENS, {products: one.astype(np.float32)}), np.float64)
        for one in (np.zeros(shape), given)
    )
    if none.shape != shape or none.any():
        raise ForeignError("something is added to products of queries and states")
    scale = float(np.float32(np.median(some / given)))
    if scale <= 0 or not np.allclose(some, scale * given, rtol=1e-3):
        raise ForeignError("scores are not proportional to products of queries and states")
    return scale
