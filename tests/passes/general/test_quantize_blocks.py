"""`quantize-blocks`: products and embeddings in 8 bits, as text and as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.passes.general import QuantizeBlocks
from optc.proof.reference.tensor_samples import give_samples
from tests.support.ir_text import f32

TEXT = """
<ir_version: 10, opset_import: ["" : 23]>
tied (float[batch, t, 64] x, int64[batch, t] ids)
    => (float[batch, t, 7] logits, float[batch, t, 64] rows, float[batch, t, 5] odd) {
  turned = Transpose <perm = [1, 0]> (table)
  logits = MatMul (x, turned)
  rows = Gather (table, ids)
  odd = MatMul (x, other)
}
"""


def tied() -> ir.Model:
    model = ir.from_onnx_text(TEXT)
    for name, array in (("table", f32(7, 64)), ("other", f32(64, 5))):
        value = next(one for node in model.graph for one in node.inputs if one.name == name)
        value.const_value = ir.tensor(array, name=name)
        value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.FLOAT)
        model.graph.register_initializer(value)
    BatchedTensors.describe(model).attach(model)
    return model


def run(model: ir.Model, path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    ir.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


@pytest.mark.parametrize("block", [0, 16, 64])
@pytest.mark.parametrize("size", [16, 32, 64])
def test_products_and_embeddings_stay(block: int, size: int, tmp_path: Path) -> None:
    x = f32(2, 3, 64)
    x[:, :, 5] *= 30  # an outlier
    ids = np.array([[0, 6, 3], [1, 1, 2]])
    wanted = [x.astype(np.float64) @ f32(7, 64).T, f32(7, 64)[ids], x @ f32(64, 5)]
    model = tied()
    report = QuantizeBlocks(group_size=size, block=block).run(model)
    assert report.details == {"int8 in blocks": 2, "embedding int8 in blocks": 1}
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("DequantizeLinear") == 2
    for found, expected in zip(run(model, tmp_path / "m.onnx", {"x": x, "ids": ids}), wanted,
                               strict=True):  # fmt: skip
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert 0 < error < 0.02


def test_one_table_serves_head_and_embedding() -> None:
    model = tied()
    QuantizeBlocks().run(model)
    sizes = {value.name: value.const_value.size for value in model.graph.initializers.values()}
    assert not {"table", "other"} & sizes.keys()
    assert sorted(size for name, size in sizes.items() if name.endswith("codes")) == [320, 448]


def test_the_engine_multiplies_integers(tmp_path: Path) -> None:
    from optc.backends.onnxruntime.legalize.blocks import fuse_block_products

    x, ids = f32(2, 3, 64), np.array([[0, 6, 3], [1, 1, 2]])
    model = tied()
    QuantizeBlocks().run(model)
    plain = run(model, tmp_path / "plain.onnx", {"x": x, "ids": ids})
    assert fuse_block_products(model) == 2
    assert "DequantizeLinear" not in {node.op_type for node in model.graph}
    fused = run(model, tmp_path / "fused.onnx", {"x": x, "ids": ids})
    for a, b in zip(plain, fused, strict=True):
        assert np.abs(a - b).max() < 0.02 * np.abs(a).max()


def correlated(rows: int, seed: int) -> np.ndarray:
    """Inputs [rows, 1, 64] that lie near eight directions."""
    source = np.random.default_rng(seed)
    found = source.standard_normal((rows, 8)) @ np.random.default_rng(5).standard_normal((8, 64))
    noise = 0.05 * source.standard_normal((rows, 64))
    return np.asarray(found + noise, np.float32)[:, None]


def test_samples_round_weights_for_the_inputs_that_come(tmp_path: Path) -> None:
    ids, x = np.array([[0]]), correlated(200, 1)
    wanted, errors = x.astype(np.float64) @ f32(64, 5), {}
    for rounding in ("nearest", "gptq"):
        model = tied()
        give_samples(model, [{"x": correlated(300, 2), "ids": ids}])
        QuantizeBlocks(rounding=rounding).run(model)
        odd = run(model, tmp_path / "m.onnx", {"x": x, "ids": ids})[2]
        errors[rounding] = np.sqrt(np.mean((odd - wanted) ** 2))
    assert errors["gptq"] < 0.5 * errors["nearest"]


def test_a_table_that_an_embedding_reads_is_rounded_to_the_nearest() -> None:
    tables = []
    for rounding in ("nearest", "gptq"):
        model = tied()
        give_samples(model, [{"x": correlated(300, 2), "ids": np.array([[0]])}])
        QuantizeBlocks(rounding=rounding).run(model)
        tables.append(model.graph.initializers["logits.codes"].const_value.numpy())
    assert (tables[0] == tables[1]).all()


def test_without_samples_it_says_so() -> None:
    with pytest.raises(InputError, match="no inputs to round with"):
        QuantizeBlocks(rounding="gptq").run(tied())


def test_the_first_products_stay_float(tmp_path: Path) -> None:
    x, ids = f32(2, 3, 64), np.array([[0, 6, 3], [1, 1, 2]])
    model = tied()
    report = QuantizeBlocks(float_first=1).run(model)
    assert report.details == {"int8 in blocks": 1}
    assert [one.rpartition(": ")[2] for one in report.skipped] == ["it is one of the first"]
    logits, rows, _ = run(model, tmp_path / "m.onnx", {"x": x, "ids": ids})
    np.testing.assert_allclose(logits, x @ f32(7, 64).T, rtol=1e-5, atol=1e-5)
    assert (rows == f32(7, 64)[ids]).all()


@pytest.mark.parametrize("turned", [True, False])
def test_the_largest_results_are_computed_again(turned: bool, tmp_path: Path) -> None:
    many = 16 * 64 + 1
    table = f32(many, 64).astype(np.float16).astype(np.float32)
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 23]>
        head (float[batch, t, 64] x, int64[batch, t] ids)
            => (float[batch, t, n] y, float[batch, t, 64] rows) {
          turned = Transpose <perm = [1, 0]> (table)
          y = MatMul (x, turned)
          rows = Gather (table, ids)
        }
        """
        if turned
        else """
        <ir_version: 10, opset_import: ["" : 23]>
        head (float[batch, t, 64] x) => (float[batch, t, n] y) { y = MatMul (x, table) }
        """
    )
    value = next(one for node in model.graph for one in node.inputs if one.name == "table")
    array = table if turned else np.ascontiguousarray(table.T)
    value.const_value = ir.tensor(array, name="table")
    value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.FLOAT)
    model.graph.register_initializer(value)
    BatchedTensors.describe(model).attach(model)
    QuantizeBlocks(rescored=8).run(model)
    x = f32(2, 3, 64)
    ids = np.array([[0, 6, 3], [1, 1, 1024]])
    inputs = {"x": x, "ids": ids} if turned else {"x": x}
    found = run(model, tmp_path / "m.onnx", inputs)
    wanted = x.astype(np.float64) @ table.T
    error = np.abs(found[0] - wanted)
    order = np.argsort(-wanted, axis=-1)
    assert np.take_along_axis(error, order[..., :4], axis=-1).max() < 1e-5
    assert 1e-4 < np.take_along_axis(error, order[..., 100:], axis=-1).max() < 0.05 * wanted.max()
    assert (found[0].argmax(axis=-1) == order[..., 0]).all()
    if turned:
        assert (found[1] == table[ids]).all()


def test_what_stays_float() -> None:
    model = tied()
    report = QuantizeBlocks(group_size=128).run(model)
    assert report.missed == 7 * 64 + 64 * 5
    for option in ({"block": 48}, {"rescored": -1}, {"float_first": -1}, {"rounding": "up"}):
        with pytest.raises(InputError, match=next(iter(option))):
            QuantizeBlocks(**option)
