"""What a file of packed weights holds comes back as it was quantized, padding left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.backend import StoredTensor
from optc.backends.tvm.weights.stored_weights import StoredWeight, stored_weights
from optc.backends.tvm.weights.weight_layouts import (
    WeightParts,
    float_weight,
    integer_weight,
    raw_weight,
    table_weight,
    two_level_weight,
)
from optc.backends.tvm.weights.weights_file import PackedWeight, tensor_bytes, write_weights
from optc.errors import ArtifactError, UnsupportedError
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme

SCHEMES = {
    "int8": Scheme(8, 0, True),
    "int8 asymmetric": Scheme(8, 32, False),
    "int4": Scheme(4, 32, True),
    "int4 asymmetric": Scheme(4, 64, False),
    **{f"int{bits} of two levels": Scheme(bits, 32, False, True) for bits in (6, 5, 4, 3, 2)},
}


def stored(path: Path, weights: Sequence[PackedWeight]) -> dict[str, StoredWeight]:
    """The weights written and found again."""
    placed = write_weights(path, weights, threads=1)
    return stored_weights(
        [
            StoredTensor(
                one.tensor.name,
                one.tensor.dtype,
                tuple(int(d) for d in one.tensor.shape),
                path,
                one.offset,
                tensor_bytes(one.tensor),
            )
            for one in placed
        ]
    )


def parts_of(rows: QuantizedRows) -> WeightParts:
    return WeightParts(
        rows.values(),
        rows.scales(),
        rows.zero_points(),
        rows.group_scales(),
        rows.bits,
        rows.group_size,
    )


class Case(NamedTuple):
    """Rows of each expert, columns and experts."""

    each: int
    columns: int
    experts: int


@pytest.mark.parametrize("label", SCHEMES)
@pytest.mark.parametrize("case", [Case(70, 192, 1), Case(20, 64, 3)])
def test_integers_come_back(label: str, case: Case, tmp_path: Path) -> None:
    scheme, total = SCHEMES[label], case.each * case.experts
    values = np.random.default_rng(3).standard_normal((total, case.columns), np.float32)
    weight = LazyWeight(lambda a, b: values[a:b], values.shape, ir.DataType.FLOAT, "w")
    wanted = quantized_rows(weight, scheme, "w")
    pack = two_level_weight if scheme.integer_scales else integer_weight
    packed = pack(
        f"w.quantized.{'packed' if case.experts == 1 else 'experts'}",
        parts_of(wanted),
        case.experts,
    )
    found = stored(tmp_path / "w.bin", [packed])["w.quantized"].rows(values.shape, case.experts)
    assert isinstance(found, QuantizedRows)
    kind = (found.bits, found.group_size, found.symmetric, found.integer_scales)
    assert kind == (scheme.bits, scheme.group_size, scheme.symmetric, scheme.integer_scales)
    for start, stop in ((0, total), (17, 45)):
        for ours, theirs in zip(found.read(start, stop), wanted.read(start, stop), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("experts", [1, 2])
def test_floats_come_back(kind: type, experts: int, tmp_path: Path) -> None:
    values = np.random.default_rng(4).standard_normal((140, 33), np.float32).astype(kind)
    dtype = ir.DataType.FLOAT if kind is np.float32 else ir.DataType.BFLOAT16
    rows = LazyWeight(lambda a, b: values[a:b], values.shape, dtype, "m")
    norm = ir.tensor(np.arange(5, dtype=np.float32), name="norm")
    written = [
        float_weight(f"m.{'matmul' if experts == 1 else 'experts'}", rows.transpose(), experts),
        table_weight("t.table", rows),
        raw_weight("norm", norm),
    ]
    found = stored(tmp_path / "w.bin", written)
    assert set(found) == {"m", "t", "norm"}
    for name in ("m", "t"):
        weight = found[name].rows(values.shape, experts)
        assert isinstance(weight, LazyWeight)
        for start, stop in ((0, 140), (60, 75)):
            np.testing.assert_array_equal(weight.read_rows(start, stop), values[start:stop])
    vector = found["norm"].rows((5,))
    assert isinstance(vector, LazyWeight)
    np.testing.assert_array_equal(vector.read_rows(1, 4), [1, 2, 3])


def test_other_shapes_and_sparse_weights_are_named(tmp_path: Path) -> None:
    values = np.ones((64, 64), np.float32)
    rows = LazyWeight(lambda a, b: values[a:b], values.shape, ir.DataType.FLOAT, "w")
    quantized = quantized_rows(rows, SCHEMES["int4"], "w")
    written = [
        integer_weight("q.packed", parts_of(quantized)),
        float_weight("f.matmul", rows.transpose()),
        raw_weight("norm", ir.tensor(np.ones(5, np.float32))),
    ]
    found = stored(tmp_path / "w.bin", written)
    for name, shape in (("q", (64, 96)), ("q", (128, 64)), ("f", (64, 60)), ("norm", (6,))):
        with pytest.raises(ArtifactError, match=r"holds no weight \["):
            found[name].rows(shape)
    mask = StoredTensor("s.packed.mask", "uint64", (1, 1, 4), tmp_path / "w.bin", 0, 32)
    with pytest.raises(UnsupportedError, match="stored sparse"):
        stored_weights([mask])["s"].rows((64, 64))
