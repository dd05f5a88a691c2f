"""Packed layouts, element by element, and their inverses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from optc.backends.tvm.weights import packing, unpacking
from optc.backends.tvm.weights.weight_layouts import WeightParts, integer_weight, two_level_weight
from optc.backends.tvm.weights.weights_file import write_weights
from optc.errors import UnsupportedError
from optc.ir import weights as weights_module
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme
from tests.backends.tvm.weights.unpacking import round_bfloat16


@pytest.mark.parametrize(("n", "k"), [(64, 32), (128, 96), (100, 77), (1, 1)])
@pytest.mark.parametrize("bits", [8, 6, 5, 4, 3, 2])
def test_integers_round_trip_and_padding_is_zero(n: int, k: int, bits: int) -> None:
    rows = np.random.default_rng(0).integers(0, 1 << bits, (n, k), np.uint8)
    packed = packing.pack_int(rows, bits)
    padded_k = -(-k // 32) * 32
    assert packed.shape == (-(-n // 64), padded_k * bits // 32, 64, 4)
    back = unpacking.unpack_int(packed, bits)
    np.testing.assert_array_equal(back[:n, :k], rows)
    assert not back[n:].any()
    assert not back[:, k:].any()


def test_bytes_lie_by_four_input_channels() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (128, 64), np.uint8)
    packed = packing.pack_int(rows, 8)
    for n, k in [(0, 0), (63, 5), (64, 63), (127, 30)]:
        assert packed[n // 64, k // 4, n % 64, k % 4] == rows[n, k]


def test_nibbles_lie_by_eight_input_channels_low_half_first() -> None:
    rows = np.random.default_rng(2).integers(0, 16, (128, 64), np.uint8)
    packed = packing.pack_int(rows, 4)
    for n, k in [(0, 0), (1, 4), (63, 11), (64, 63), (127, 30)]:
        shift = 4 * (k % 8 // 4)
        assert packed[n // 64, k // 8, n % 64, k % 4] >> shift & 15 == rows[n, k]


@pytest.mark.parametrize(("bits", "channels"), [(6, 16), (5, 32), (3, 32), (2, 16)])
def test_other_bits_lie_in_rows_of_their_own(bits: int, channels: int) -> None:
    """Rows of the low four or two bits, then one of the high ones, of so many channels."""
    rows = np.random.default_rng(2).integers(0, 1 << bits, (128, 64), np.uint8)
    packed = packing.pack_int(rows, bits)
    low = 4 if bits > 4 else 2
    for n, k in [(0, 0), (1, 4), (63, 11), (64, 63), (127, 30), (5, 22), (9, 47)]:
        unit, within = k // channels * (channels * bits // 32), k % channels
        fields = 8 // low
        at = (n // 64, unit + within // 4 // fields, n % 64, k % 4)
        value = packed[at] >> within // 4 % fields * low & (1 << low) - 1
        if bits > low:
            high = packed[n // 64, unit + channels * low // 32, n % 64, k % 4]
            value |= (high >> within // 4 * (bits - low) & (1 << bits - low) - 1) << low
        assert value == rows[n, k]


def test_tiles_packed_one_by_one_make_the_whole() -> None:
    rows = np.random.default_rng(3).integers(0, 16, (200, 40), np.uint8)
    parts = [packing.pack_int(rows[a : a + 64], 4) for a in range(0, 200, 64)]
    np.testing.assert_array_equal(np.concatenate(parts), packing.pack_int(rows, 4))


def test_scales_and_zero_points_lie_by_blocks() -> None:
    values = np.random.default_rng(4).uniform(0, 1, (100, 3)).astype(np.float16)
    packed = packing.pack_columns(values, np.float16)
    assert (packed.shape, packed.dtype) == ((2, 3, 64), np.float16)
    assert packed[1, 2, 35] == values[99, 2]
    np.testing.assert_array_equal(unpacking.unpack_columns(packed)[:100], values)
    assert packing.pack_columns(values[:, 0].astype(np.float32), np.float32).shape == (2, 1, 64)


def test_float32_round_trips() -> None:
    rows = np.random.default_rng(5).standard_normal((100, 7), np.float32)
    packed = packing.pack_float32(rows)
    assert packed.shape == (2, 7, 64)
    assert packed[1, 6, 35] == rows[99, 6]
    np.testing.assert_array_equal(unpacking.unpack_float32(packed)[:100], rows)


@pytest.mark.parametrize("k", [6, 7])
def test_bfloat16_round_trips(k: int) -> None:
    rows = round_bfloat16(np.random.default_rng(6).standard_normal((70, k), np.float32))
    packed = packing.pack_bfloat16(rows)
    assert packed.shape == (2, (k + 1) // 2, 64, 2)
    assert packed[1, 2, 5, 1] == rows[69, 5]
    np.testing.assert_array_equal(unpacking.unpack_bfloat16(packed)[:70, :k], rows)


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = np.random.default_rng(7).standard_normal(4096, np.float32)
    values[:4] = [1 + 2**-8, 1 + 3 * 2**-8, -0.0, 3.4e38]
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(round_bfloat16(values), expected)


@pytest.mark.parametrize(
    "scheme",
    [Scheme(4, 32, False), Scheme(8, 0, True), Scheme(4, 32, False, integer_scales=True)],
    ids=lambda s: s.label,
)
def test_neither_threads_nor_tiles_change_a_bit(
    scheme: Scheme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quantized weight, searched ranges included, as it lands in the file."""
    floats = np.random.default_rng(6).standard_normal((700, 256), np.float32)
    weight = LazyWeight(lambda a, b: floats[a:b], floats.shape, ir.DataType.FLOAT, "w")
    rows = quantized_rows(weight, scheme, "w")
    files = []
    for threads, tile in [(1, 1 << 20), (1, 1 << 14), (3, 1 << 15), (4, 1 << 14)]:
        monkeypatch.setattr(weights_module, "TILE_ELEMENTS", tile)
        pack = two_level_weight if scheme.integer_scales else integer_weight
        packed = pack("w", _parts(rows))
        write_weights(tmp_path / "w", [packed], threads=threads)
        files.append((len(packed.tiles), (tmp_path / "w").read_bytes()))
    assert [count for count, _ in files] == [1, 11, 6, 11]
    assert len({content for _, content in files}) == 1


def _parts(rows: QuantizedRows) -> WeightParts:
    tensors = (rows.values(), rows.scales(), rows.zero_points(), rows.group_scales())
    return WeightParts(*tensors, bits=rows.bits, group_size=rows.group_size)


def _stored(parts: WeightParts) -> WeightParts:
    """The same weight as plain tensors, as a file has them."""
    names = ("values", "scales", "zero_points", "group_scales")
    tensors = {name: getattr(parts, name) for name in names}
    return replace(
        parts, **{name: ir.Tensor(t.numpy(), dtype=t.dtype) for name, t in tensors.items()}
    )


@pytest.mark.parametrize("bits", [6, 5, 4, 3, 2])
@pytest.mark.parametrize("lazy", [True, False])
def test_integer_scales_are_packed_with_offsets(lazy: bool, bits: int) -> None:
    """Weights computed on demand, and plain tensors as a file has them."""
    floats = np.random.default_rng(8).standard_normal((70, 96), np.float32)
    weight = LazyWeight(lambda a, b: floats[a:b], floats.shape, ir.DataType.FLOAT, "w")
    rows = quantized_rows(weight, Scheme(bits, 32, False, integer_scales=True), "w")
    tile = rows.read(0, 70)
    assert tile.zero_points is not None
    assert tile.group_scales is not None
    parts = _parts(rows) if lazy else _stored(_parts(rows))
    packed = two_level_weight("w", parts)
    values, groups, scales = (
        np.concatenate(c)
        for c in zip(*([chunk for _, chunk in packed.pack(*t)] for t in packed.tiles), strict=True)
    )
    assert [t.shape for t in packed.tensors] == [values.shape, groups.shape, scales.shape]
    np.testing.assert_array_equal(unpacking.unpack_int(values, bits)[:70, :96], tile.values)
    np.testing.assert_array_equal(unpacking.unpack_columns(groups[:, :, 0])[:70], tile.group_scales)
    offsets = 128 - tile.zero_points.astype(int)
    np.testing.assert_array_equal(unpacking.unpack_columns(groups[:, :, 1])[:70], offsets)
    np.testing.assert_array_equal(unpacking.unpack_columns(scales)[:70, 0], tile.scales)
    # engines without such kernels read the same weight as int8 per channel
    int8 = integer_weight("w", parts)
    (chunks,) = (dict(int8.pack(*t)) for t in int8.tiles)
    assert [t.shape for t in int8.tensors] == [chunks[0].shape, chunks[1].shape]
    stored = unpacking.unpack_int(chunks[0], 8)[:70, :96].astype(int) - 128
    np.testing.assert_array_equal(stored, tile.as_int8().values)
    np.testing.assert_array_equal(unpacking.unpack_columns(chunks[1])[:70, 0], tile.scales)


def test_groups_that_leave_int8_are_refused() -> None:
    one = np.ones((64, 1), np.uint8)
    parts = (one.repeat(32, 1).T, np.ones(64, np.float32), 127 * one.T, 17 * one.T)
    kinds = (ir.DataType.UINT4, ir.DataType.FLOAT, ir.DataType.UINT8, ir.DataType.UINT8)
    tensors = [
        ir.Tensor(part.astype(kind.numpy()), dtype=kind)
        for part, kind in zip(parts, kinds, strict=True)
    ]
    packed = two_level_weight("w", WeightParts(*tensors, bits=4, group_size=32))
    with pytest.raises(UnsupportedError, match=r"weight w: .*not within -128\.\.127"):
        list(packed.pack(0, 64))
