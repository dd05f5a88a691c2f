"""Block influence, beside cosines of the streams of a run that NumPy sees."""

from __future__ import annotations

import numpy as np

from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.influence import influences
from optc.passes.prune.structured.sublayers import find_sublayers, remove_sublayers
from optc.proof.reference.blockwise import BlockwiseReference
from tests.passes.prune.structured.on_letters import TOKENS
from tests.support.dense_models import dense_model


def stream(layers: int) -> np.ndarray:
    """The residual stream behind the first sub-layers, of a model without others, up to a factor
    for each token, which a cosine does not see."""
    model = dense_model(2)
    found = find_sublayers(model, PassReport())
    remove_sublayers(model, found[layers:])
    reference = BlockwiseReference(model, 1)
    norm = model.graph.initializers["norm"].const_value
    assert norm is not None
    return reference.run(TOKENS).astype(np.float64) / norm.numpy()


def test_it_is_one_minus_the_mean_cosine_of_before_and_after() -> None:
    model = dense_model(2)
    found = influences(model, TOKENS, find_sublayers(model, PassReport()))
    streams = [stream(count) for count in range(5)]
    for own, before, after in zip(found, streams[:-1], streams[1:], strict=True):
        lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        np.testing.assert_allclose(own, 1 - np.mean((before * after).sum(1) / lengths), rtol=1e-3)
