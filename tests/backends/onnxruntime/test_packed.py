"""Packed integer weights in ONNX Runtime's operators, against float64."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.onnxruntime.legalize.packed import PackedRows
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from tests.support.ir_text import Array
from tests.support.ragged import run


def quantized(
    n: int, k: int, bits: int, group: int, symmetric: bool, floats: bool = False
) -> tuple[QuantizedRows, Array]:
    """A random weight [N, K], and its meaning in float64."""
    rng = np.random.default_rng([n, k, bits])
    low = -(1 << (bits - 1)) if symmetric else 0
    values = rng.integers(low, low + (1 << bits), (n, k))
    shape = (n, k // group) if group else (n,)
    scales = (rng.random(shape) + 0.5).astype(np.float32) / 50
    zeros = None if symmetric else rng.integers(0, 1 << bits, shape).astype(np.uint8)
    if floats:
        zeros = rng.uniform(-2, 18, shape).astype(np.float32)
    wide = values.astype(np.float64)
    if zeros is not None:
        wide -= np.repeat(zeros, group, axis=1)
    wide *= np.repeat(scales, group, axis=1) if group else scales[:, None]
    stored = values.astype(np.int8 if symmetric else np.uint8)

    def read(start: int, stop: int) -> QuantizedTile:
        zero = None if zeros is None else zeros[start:stop]
        return QuantizedTile(stored[start:stop], scales[start:stop], zero)

    made = QuantizedRows(read, n, k, bits, group, symmetric, "w", float_zeros=floats)
    return made, wide


def operator(op_type: str, inputs: list[Array | None], feed: int, **attributes: int) -> Array:
    """One operator; all operands but number ``feed`` are constants."""
    values: list[ir.Value | None] = []
    for index, array in enumerate(inputs):
        if array is None:
            values.append(None)
            continue
        tensor = ir.tensor(array, name=f"in{index}")
        value = ir.Value(name=f"in{index}", type=ir.TensorType(tensor.dtype),
                         shape=ir.Shape(array.shape))  # fmt: skip
        value.const_value = None if index == feed else tensor
        values.append(value)
    node = ir.Node("com.microsoft", op_type, values, ir.convenience.convert_attributes(attributes))
    node.outputs[0].name, node.outputs[0].type = "out", ir.TensorType(ir.DataType.FLOAT)
    constants = [v for v in values if v is not None and v.const_value is not None]
    graph = ir.Graph([v for v in values if v is not None and v.const_value is None], node.outputs,
                     nodes=[node], initializers=constants, name="g",
                     opset_imports={"": 24, "com.microsoft": 1})  # fmt: skip
    given = inputs[feed]
    assert given is not None
    return run(ir.Model(graph, ir_version=10), {f"in{feed}": given})[0]


CASES = [
    (40, 64, 4, 32, True, 32),
    (40, 96, 4, 32, False, 32),
    (33, 128, 4, 64, False, 64),
    (24, 256, 8, 0, True, 128),
    (24, 96, 8, 32, False, 32),
    (24, 80, 8, 0, True, 16),
    (24, 72, 8, 0, True, 16),  # no block fills K
]


@pytest.mark.parametrize(("n", "k", "bits", "group", "symmetric", "block"), CASES)
def test_the_product_is_that_of_the_weight(
    n: int, k: int, bits: int, group: int, symmetric: bool, block: int
) -> None:
    source, weight = quantized(n, k, bits, group, symmetric)
    packed = PackedRows.of(source)
    assert packed.block == block
    tile = packed.read(0, n)
    x = np.random.default_rng(1).standard_normal((2, 3, k)).astype(np.float32)
    want = x @ weight.T
    # activations are rounded to 8 bits in each block, or not at all
    for level, most in ((4, 0.01), (1, 2e-6)):
        got = operator(
            "MatMulNBits", [x, tile.values, tile.scales, tile.zero_points], 0,
            N=n, K=k, bits=bits, block_size=block, accuracy_level=level,
        )  # fmt: skip
        assert np.abs(got - want).max() < 2 * most * np.abs(want).max()
        assert np.linalg.norm(got - want) < most * np.linalg.norm(want)


def test_the_product_with_float_zero_points() -> None:
    source, weight = quantized(33, 96, 4, 32, symmetric=False, floats=True)
    tile, parts = PackedRows.of(source).read(0, 33), PackedRows.of(source).parts()
    assert [part.dtype for part in parts] == [ir.DataType.UINT8, *[ir.DataType.FLOAT] * 2]
    assert tuple(parts[2].shape) == (33, 3)
    x = np.random.default_rng(1).standard_normal((2, 3, 96)).astype(np.float32)
    got = operator(
        "MatMulNBits", [x, tile.values, tile.scales, tile.zero_points], 0,
        N=33, K=96, bits=4, block_size=32, accuracy_level=4,
    )  # fmt: skip
    np.testing.assert_allclose(got, x @ weight.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "k", "bits", "group", "symmetric", "block"), CASES[:-1])
def test_rows_of_the_embedding_are_those_of_the_weight(
    n: int, k: int, bits: int, group: int, symmetric: bool, block: int
) -> None:
    source, weight = quantized(n, k, bits, group, symmetric)
    tile = PackedRows.of(source).read(0, n)
    tokens = np.array([[3, 0], [n - 1, 3]], np.int32)
    got = operator(
        "GatherBlockQuantized",
        [tile.values.reshape(n, -1), tokens, tile.scales, tile.zero_points], 1,
        bits=bits, block_size=block, gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    np.testing.assert_allclose(got, weight[tokens], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_parts_read_in_pieces_are_the_whole(symmetric: bool) -> None:
    source, _ = quantized(20, 96, 4, 32, symmetric)
    packed = PackedRows.of(source)
    parts = packed.parts()
    assert [p.name for p in parts] == ["w.quantized", "w.scale", "w.zero_point"][: 3 - symmetric]
    for part, want in zip(parts, packed.read(0, 20), strict=False):
        pieces = [part.read_rows(0, 7), part.read_rows(7, 20)]
        np.testing.assert_array_equal(np.concatenate(pieces), want)
        np.testing.assert_array_equal(part.numpy(), want)
