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


def test_what_stays_float() -> None:
    model = tied()
    report = QuantizeBlocks(group_size=128).run(model)
    assert report.missed == 7 * 64 + 64 * 5
    with pytest.raises(InputError, match="block"):
        QuantizeBlocks(block=48)
