"""Hessians found layer by layer equal those of the whole model run at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.ir.linear import find_linear
from optc.proof.reference import blockwise as reference_module
from optc.proof.reference.input_hessians import Float64, HessianObserver
from optc.proof.reference.observers import BlockValues
from tests.support.dense_models import V, dense_model


@pytest.mark.parametrize("options", [{}, {"window": 4}, {"layers": 1}], ids=str)
def test_hessians_are_means_of_outer_products(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_module, "BLOCK_ROWS", 24)  # several chunks
    model = dense_model(**options)
    tokens = np.random.default_rng(1).integers(0, V, (5, 12), np.int32)
    linears = [linear for node in model.graph if (linear := find_linear(node))]
    watched = {linear.x for linear in linears}
    found: dict[ir.Value, Float64] = {}

    def keep(value: ir.Value, hessian: Float64) -> None:
        assert value not in found, "each is given once"
        found[value] = hessian

    reference_module.observe(model, tokens, [HessianObserver(watched, keep)], 1)
    assert set(found) == watched
    whole = model.clone()
    names = sorted(str(value.name) for value in watched)
    by_name = {str(v.name): v for node in whole.graph for v in node.outputs}
    whole.graph.outputs[:] = [by_name[name] for name in names]
    session = ort.InferenceSession(ir.to_proto(whole).SerializeToString())
    positions = np.tile(np.arange(12, dtype=np.int64), (5, 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    want = dict(zip(names, session.run(None, feeds), strict=True))
    for value, hessian in found.items():
        rows = want[str(value.name)].reshape(60, -1).astype(np.float64)
        expected = rows.T @ rows / 60
        assert hessian.dtype == np.float64
        np.testing.assert_array_equal(hessian, hessian.T)
        np.testing.assert_allclose(hessian, expected, rtol=1e-4, atol=1e-5 * expected.max())


def test_many_chunks_do_not_lose_what_is_small() -> None:
    """A float32 sum of so many chunks would stand still."""
    value, found = ir.Value(name="x"), list[Float64]()
    observer = HessianObserver([value], lambda _, hessian: found.append(hessian))
    chunk = np.array([[4096.0, 1.0]], np.float32)
    for _ in range(3000):
        observer.on_values(BlockValues(None, slice(0, 1), {value: chunk}, {value: chunk}))  # type: ignore[arg-type]
    observer.on_values(
        BlockValues(None, slice(0, 1), {value: chunk * 0, ir.Value(name="y"): chunk}, {})  # type: ignore[arg-type]
    )
    assert observer.rewrite(None) == {}  # type: ignore[arg-type]
    (hessian,) = found
    row = chunk[0].astype(np.float64)
    np.testing.assert_allclose(hessian, 3000 / 3001 * np.outer(row, row), rtol=1e-12)
