"""Which weights are stored sparse, why others are not, and how they are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from optc.backends.tvm.weights.sparse_weights import (
    MANY_ZEROS,
    MOST_BYTES,
    SAMPLE_PLACES,
    SAMPLE_ROWS,
    SparseWeights,
    byte_share,
    is_zero,
    sampled_zeros,
)
from optc.backends.tvm.weights.unpacking import unpack_columns
from optc.backends.tvm.weights.weight_layouts import WeightParts, integer_weight
from optc.backends.tvm.weights.weights_file import tensor_bytes, write_weights
from optc.ir import weights as weights_module
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme
from tests.backends.tvm.weights.unpacking import unpack_sparse

PER_CHANNEL = Scheme(8, 0, True)
INTEGER_SCALES = Scheme(4, 32, False, integer_scales=True)


def floats(zeros: float, n: int = 200, k: int = 320) -> npt.NDArray[np.float32]:
    """The smallest share ``zeros`` of each row is zero."""
    weight = np.random.default_rng(5).standard_normal((n, k), np.float32)
    weight[np.argsort(np.argsort(np.abs(weight))) < round(zeros * k)] = 0
    return weight


def quantized(weight: npt.NDArray[np.float32], scheme: Scheme = PER_CHANNEL) -> QuantizedRows:
    lazy = LazyWeight(lambda a, b: weight[a:b], weight.shape, ir.DataType.FLOAT, "w")
    return quantized_rows(lazy, scheme, "w")


def parts_of(rows: QuantizedRows) -> WeightParts:
    tensors = (rows.values(), rows.scales(), rows.zero_points(), rows.group_scales())
    return WeightParts(*tensors, bits=rows.bits, group_size=rows.group_size)


def test_half_zeros_take_less_than_two_thirds_of_the_dense_bytes(tmp_path: Path) -> None:
    rows = quantized(floats(0.5, 512, 2048))
    decided = SparseWeights()
    packed = decided.packed("w", parts_of(rows))
    assert packed is not None
    sparse, dense = (
        sum(map(tensor_bytes, weight.tensors))
        for weight in (packed, integer_weight("w", parts_of(rows)))
    )
    assert sparse <= 0.65 * dense
    assert decided.stored == {"w": pytest.approx(0.5, abs=0.02)}
    assert decided.lines() == ()
    assert decided.to_json() == {"sparse": decided.stored, "dense": []}


def test_values_scales_and_starts_are_those_of_the_weight() -> None:
    rows = quantized(floats(0.6))
    packed = SparseWeights().packed("w", parts_of(rows))
    assert packed is not None
    assert [t.name for t in packed.tensors] == ["w.mask", "w.starts", "w.values", "w.scales"]
    pieces: list[list[npt.NDArray[Any]]] = [[], [], [], []]
    for tile in packed.tiles:
        for index, chunk in packed.pack(*tile):
            pieces[index].append(chunk)
    arrays = [np.concatenate(piece) for piece in pieces]
    assert [(t.dtype, t.shape) for t in packed.tensors] == [(a.dtype, a.shape) for a in arrays]
    tile = rows.read(0, 200)
    mask, first, values, scales = arrays
    np.testing.assert_array_equal(unpack_sparse(mask, first, values)[:200], tile.values)
    np.testing.assert_array_equal(unpack_columns(scales)[:200, 0], tile.scales)


def test_bytes_depend_on_neither_tiles_nor_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = quantized(floats(0.5, 700, 320))
    files = []
    for threads, tile in [(1, 1 << 20), (1, 1 << 14), (3, 1 << 16), (4, 1 << 14)]:
        monkeypatch.setattr(weights_module, "TILE_ELEMENTS", tile)
        packed = SparseWeights().packed("w", parts_of(rows))
        assert packed is not None
        write_weights(tmp_path / "w", [packed], threads=threads)
        files.append((len(packed.tiles), (tmp_path / "w").read_bytes()))
    assert [count for count, _ in files] == [1, 11, 4, 11]
    assert len({content for _, content in files}) == 1


def test_the_rule_is_one_of_bytes() -> None:
    assert byte_share(0.5, 8) == pytest.approx((64 + 4 * 64) / (8 * 64))
    assert byte_share(0.5, 4) == pytest.approx((64 + 2 * 64) / (4 * 64))
    least = 1 + 1 / 8 - MOST_BYTES
    decided = SparseWeights()
    assert decided.packed("more", parts_of(quantized(floats(least + 0.02)))) is not None
    assert decided.packed("less", parts_of(quantized(floats(least - 0.03)))) is None
    assert decided.packed("few", parts_of(quantized(floats(MANY_ZEROS - 0.05)))) is None
    (line,) = decided.lines()
    assert line == (
        "weight less with 29 % zeros is stored dense: its mask and values would take 0.83 of the "
        "dense bytes"
    )


def test_dense_weights_with_many_zeros_are_named_by_their_reason() -> None:
    decided = SparseWeights(refusal="engines for x86-64-v3 have no sparse kernels")
    for name, zeros in [("a", 0.5), ("b", 0.7), ("c", 0.0)]:
        assert decided.packed(name, parts_of(quantized(floats(zeros)))) is None
    shares = [weight.zeros for weight in decided.dense]
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    assert decided.lines() == (
        f"2 weights with {low} to {high} % zeros, such as a, are stored dense: engines for "
        "x86-64-v3 have no sparse kernels",
    )
    assert [entry["name"] for entry in decided.to_json()["dense"]] == ["a", "b"]
    assert decided.stored == {}


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        (Scheme(4, 32, True), "4 bits in groups of 32"),
        (Scheme(8, 32, True), "8 bits in groups of 32"),
        (INTEGER_SCALES, "4 bits in groups of 32"),
    ],
)
def test_formats_without_sparse_kernels_stay_dense(scheme: Scheme, kind: str) -> None:
    decided = SparseWeights()
    weight = floats(0.75)
    assert decided.packed("w", parts_of(quantized(weight, scheme))) is None
    (line,) = decided.lines()
    assert line.endswith(f"is stored dense: there is no sparse kernel for {kind}")
    plain = SparseWeights()
    assert plain.packed("w", parts_of(quantized(floats(0.0), scheme))) is None
    assert plain.lines() == ()


def test_float_weights_with_many_zeros_stay_dense() -> None:
    decided = SparseWeights()
    for name, zeros in [("w", 0.5), ("v", 0.1)]:
        decided.float_weight(name, ir.tensor(floats(zeros).T.copy()))
    assert decided.lines() == (
        "weight w with 50 % zeros is stored dense: there is no sparse kernel for float",
    )


def test_an_engine_on_the_weights_of_another_has_them_as_they_are() -> None:
    parts = parts_of(quantized(floats(0.5)))
    assert SparseWeights(given=frozenset({"w.mask"})).packed("w", parts) is not None
    other = SparseWeights(given=frozenset({"w.values"}))
    assert other.packed("w", parts) is None
    assert other.lines()[0].endswith("the engine whose weights it reads has it dense")


def test_sizes_are_estimated_without_reading_all() -> None:
    read: list[tuple[int, int]] = []
    rows = quantized(floats(0.5))
    counted = replace(rows, read=lambda a, b: (read.append((a, b)), rows.read(a, b))[1])
    estimated = SparseWeights(exact=False).packed("w", parts_of(counted))
    exact = SparseWeights().packed("w", parts_of(rows))
    assert estimated is not None
    assert exact is not None
    assert sum(stop - start for start, stop in read) == SAMPLE_ROWS * SAMPLE_PLACES
    sizes = [sum(map(tensor_bytes, packed.tensors)) for packed in (estimated, exact)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


@pytest.mark.parametrize(
    "scheme", [PER_CHANNEL, Scheme(8, 0, False), Scheme(4, 32, False), INTEGER_SCALES]
)
def test_zeros_are_those_of_the_weights(scheme: Scheme) -> None:
    """As dequantized in float64, which makes nothing of the kind of scale and zero point."""
    tile = quantized(floats(0.5), scheme).read(0, 200)
    groups = 320 // (scheme.group_size or 320)
    values = tile.values.reshape(200, groups, -1).astype(np.float64)
    if tile.group_scales is not None:
        values = values * tile.group_scales[:, :, None]
    if tile.zero_points is not None:
        values = values - tile.zero_points.reshape(200, groups, 1)
    zeros = is_zero(tile)
    np.testing.assert_array_equal(zeros, values.reshape(200, 320) == 0)
    assert zeros.any()


def test_a_sample_has_rows_from_all_over_the_weight() -> None:
    spots: list[tuple[int, int]] = []
    lazy = LazyWeight(lambda a, b: np.zeros((b - a, 4)), (1000, 4), ir.DataType.FLOAT, "w")

    def zeros(start: int, stop: int) -> npt.NDArray[np.bool_]:
        spots.append((start, stop))
        return np.full((stop - start, 4), start == 0)

    assert sampled_zeros(lazy, zeros) == 1 / SAMPLE_PLACES
    assert (spots[0], spots[-1], len(spots)) == ((0, 8), (992, 1000), 4)
    short = LazyWeight(lambda a, b: np.zeros((b - a, 4)), (3, 4), ir.DataType.FLOAT, "w")
    assert sampled_zeros(short, lambda a, b: np.ones((b - a, 4), np.bool_)) == 1
