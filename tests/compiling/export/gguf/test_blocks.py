"""Each grid in the type of GGUF that has its integers, read back by the gguf package."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from optc.compiling.export.gguf.blocks import Loss, pieces, type_of
from optc.errors import UnsupportedError
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme

ROWS = np.random.default_rng(2).standard_normal((23, 96), np.float32)
SCHEMES = {
    "Q8_0 per channel": (Scheme(8, 0, True), "Q8_0"),
    "Q8_0": (Scheme(8, 32, True), "Q8_0"),
    "Q4_0": (Scheme(4, 32, True), "Q4_0"),
    "Q4_1": (Scheme(4, 32, False), "Q4_1"),
    "Q4_1 of 2 bits": (Scheme(2, 32, False, True), "Q4_1"),
    "Q8_0 of 6 bits": (Scheme(6, 32, False, True), "Q8_0"),
    "F16": (Scheme(8, 32, False), "F16"),
}


@pytest.mark.parametrize("label", SCHEMES)
def test_grids(label: str) -> None:
    scheme, kind = SCHEMES[label]
    floats = LazyWeight(lambda a, b: ROWS[a:b], ROWS.shape, ir.DataType.FLOAT, "w")
    rows, loss = quantized_rows(floats, scheme, "w"), Loss()
    assert type_of(rows) == kind
    data = np.concatenate(list(pieces(rows, kind, "w", loss)))
    found, wanted = dequantize(data, Kind[kind]), rows.floats(0, rows.rows)
    # two numbers are rounded to float16 where the type has a minimum: 15 steps, and its zero point
    np.testing.assert_allclose(found, wanted, rtol=2**-10, atol=2**-9 if kind == "Q4_1" else 0)
    error = np.sqrt(np.square(found - wanted).sum() / np.square(wanted).sum())
    assert loss.relative == pytest.approx(float(error), abs=1e-8)


def _rows(array: Any, start: int, stop: int) -> Any:
    return array[start:stop]


def test_floats() -> None:
    for kind, array in (("F32", ROWS), ("BF16", ROWS.astype(ml_dtypes.bfloat16))):
        dtype = ir.DataType.FLOAT if kind == "F32" else ir.DataType.BFLOAT16
        weight = LazyWeight(partial(_rows, array), array.shape, dtype, "w")
        assert type_of(weight) == kind
        data = np.concatenate(list(pieces(weight, kind, "w", Loss())))
        np.testing.assert_array_equal(data.view(array.dtype).reshape(array.shape), array)


def test_scales_beyond_float16_are_refused() -> None:
    tile = QuantizedTile(np.ones((2, 32), np.int8), np.full(2, 1e6, np.float32), None)
    rows = QuantizedRows(lambda a, b: tile, 2, 32, 8, 0, True, "w")
    with pytest.raises(UnsupportedError, match=r"^w: a scale is beyond the range of float16"):
        list(pieces(rows, "Q8_0", "w", Loss()))
