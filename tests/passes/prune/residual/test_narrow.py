"""A narrower residual stream: the graph as text, and numbers beside NumPy and whole models."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.linear import find_linears
from optc.passes.prune.residual.narrow import Basis, head_behind, narrow, to_head
from optc.passes.prune.structured.check import check_structure
from optc.passes.quantize.rotate.residual import NotTurnableError, find_residual
from tests.passes.prune.residual.tiny import (
    ARRAYS,
    TOKENS,
    D,
    components,
    head_of,
    normed,
    tiny_model,
    whole,
)
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run, run_dense

SIZE = 8
TURNED = ["llama", "qwen2", "qwen3", "mistral", "phi3", "sinks", "chunks"]


def basis_of(model: object, columns: np.ndarray, size: int) -> Basis:
    residual = find_residual(model)  # type: ignore[arg-type]
    kept = columns[:, :size]
    head = head_behind(model, residual)  # type: ignore[arg-type]
    return Basis(kept, kept, to_head(head, residual, kept, kept))


def logits(model: object) -> np.ndarray:
    positions = np.tile(np.arange(TOKENS.shape[1]), (len(TOKENS), 1))
    inputs = {"input_ids": TOKENS.astype(np.int64), "position_ids": positions}
    return run(model, inputs)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [True, False])
def test_the_graph_and_its_numbers(tied: bool) -> None:
    """Norms are over all D channels still, of which some are zero."""
    model, columns = tiny_model(tied=tied), components(TOKENS)
    narrow(model, find_residual(model), basis_of(model, columns, SIZE))
    check_structure(model)
    layer = "b = MatMul (m, residual_to_head)\n        " if tied else ""
    text = nodes_text(model).replace("residual_to_head.result", "b")
    assert text == expected(
        f"""
        e = Gather <axis = 0> (table, input_ids)
        n = RMSNormalization <axis = -1, epsilon = 0.075> (e, gamma)
        h = MatMul (n, up)
        a = Sigmoid (h)
        d = MatMul (a, down)
        r = Add (e, d)
        m = RMSNormalization <axis = -1, epsilon = 0.075> (r, last)
        {layer}logits = MatMul ({"b" if tied else "m"}, head)"""
    )
    shapes = {name: tuple(v.shape or ()) for name, v in model.graph.initializers.items()}
    assert shapes["table"] == (32, SIZE)
    assert shapes["up"] == (SIZE, 16)
    assert shapes["down"] == (16, SIZE)
    assert shapes["head"] == (SIZE, 32)
    kept = columns[:, :SIZE]
    x = ARRAYS["table"].astype(np.float64)[TOKENS] @ kept
    h = normed(x) @ (kept.T @ (ARRAYS["gamma"][:, None] * ARRAYS["up"]))
    x = x + (1 / (1 + np.exp(-h))) @ ARRAYS["down"] @ kept
    n, head = normed(x), head_of(tied).astype(np.float64)
    if tied:
        given = head.T @ (ARRAYS["last"][:, None] * kept)  # the nearest of table times B
        to = np.linalg.lstsq(head.T @ kept, given, rcond=None)[0]
        wanted = n @ to.T @ kept.T @ head
    else:
        wanted = n @ kept.T @ (ARRAYS["last"][:, None] * head)
    np.testing.assert_allclose(logits(model), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_all_channels_turned_are_the_model(tied: bool) -> None:
    model, columns = tiny_model(tied=tied), components(TOKENS)
    narrow(model, find_residual(model), basis_of(model, columns, D))
    wanted = (normed(whole(TOKENS)[1]) * ARRAYS["last"]) @ head_of(tied)
    np.testing.assert_allclose(logits(model), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", TURNED)
def test_families_stay_as_they_are_with_all_channels(family: str) -> None:
    tokens, model = list(range(20)), dense_model(FAMILIES[family])
    size = find_linears(model)[0].weight.rows_shape[1]
    columns = np.linalg.qr(np.random.default_rng(1).standard_normal((size, size)))[0]
    narrow(model, find_residual(model), basis_of(model, columns, size))
    check_structure(model)
    wanted = run_dense(dense_model(FAMILIES[family]), tokens)
    np.testing.assert_allclose(run_dense(model, tokens), wanted, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("family", TURNED)
def test_families_with_fewer_channels_belong_together(family: str) -> None:
    model = dense_model(FAMILIES[family])
    size = find_linears(model)[0].weight.rows_shape[1]
    narrow(model, find_residual(model), basis_of(model, np.eye(size), size - 8))
    check_structure(model)
    assert find_linears(model)[0].weight.rows_shape[1] == size - 8
    assert np.isfinite(run_dense(model, list(range(20)))).all()


def test_a_head_that_is_not_alone_is_refused() -> None:
    model = tiny_model(tied=False)
    residual = find_residual(model)
    assert residual.last is not None
    model.graph.outputs.append(residual.last.outputs[0])
    other = model.graph.initializers["last"]
    residual.readers[0][0].replace_input_with(1, other)
    with pytest.raises(NotTurnableError, match="the last norm's scale is computed or used"):
        head_behind(model, residual)
