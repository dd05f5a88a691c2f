"""Layers of compressed-tensors in each of its formats."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from optc.errors import InputError, UnsupportedError
from tests.importer.quantized.files import (
    Array,
    e2m1_codes,
    e2m1_values,
    pack_quantized_layer,
    packed,
    pairs,
    read,
    spread,
)
from tests.importer.quantized.test_packed_integers import check, layer

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((40, 128)).astype(np.float32)


def of(stated: str, **more: object) -> dict[str, object]:
    return {"quant_method": "compressed-tensors", "format": stated, **more}


PACKED = of("pack-quantized")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_pack_quantized(bits: int, symmetric: bool, tmp_path: Path) -> None:
    tensors, expected = pack_quantized_layer(ROWS, 32, bits, symmetric=symmetric)
    found = read(tmp_path / "m", layer(tensors), **PACKED)["l.weight"]
    grid = {"bits": bits, "group_size": 32, "symmetric": symmetric}
    check(found, expected, label=f"compressed-tensors int{bits}", **grid)


def test_scales_in_bfloat16_are_those_of_float16(tmp_path: Path) -> None:
    tensors, expected = pack_quantized_layer(ROWS, 64, 4, symmetric=True)
    scale = tensors["weight_scale"].astype(ml_dtypes.bfloat16)
    expected = expected / spread(tensors["weight_scale"], 64) * spread(scale, 64)
    tensors["weight_scale"] = scale
    found = read(tmp_path / "m", layer(tensors), **PACKED)["l.weight"]
    np.testing.assert_allclose(found.read_rows(0, 40), expected, rtol=1e-6)
    assert found.given is not None
    assert found.given.rows is not None


def test_zero_points_of_the_middle_are_none(tmp_path: Path) -> None:
    tensors, expected = pack_quantized_layer(ROWS, 32, 4, symmetric=True)
    middle = np.full((4, 40), 8)
    for zeros in (packed(middle, 4).T, np.zeros((40, 4), np.int8)):
        tensors["weight_zero_point"] = zeros
        found = read(tmp_path / "m", layer(tensors), **PACKED)["l.weight"]
        check(found, expected, label="compressed-tensors int4", symmetric=True, group_size=32)


def test_columns_that_do_not_fill_a_word(tmp_path: Path) -> None:
    rows = ROWS[:, :36]
    tensors, expected = pack_quantized_layer(rows, 12, 4, symmetric=True)
    found = read(tmp_path / "m", layer(tensors), **PACKED)["l.weight"]
    assert found.given is not None
    assert found.given.rows is None, "no engine has groups of 12"
    np.testing.assert_array_equal(found.read_rows(0, 40), expected)


def test_groups_out_of_order_are_decoded(tmp_path: Path) -> None:
    for symmetric in (True, False):
        tensors, _ = pack_quantized_layer(ROWS, 32, 4, symmetric=symmetric)
        index = RANDOM.permutation(np.arange(128) // 32).astype(np.int32)
        words = tensors["weight_packed"].view(np.uint32)
        q = (words[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(40, 128)
        zero: Array = np.full((40, 4), 8)
        if not symmetric:
            stored = np.ascontiguousarray(tensors["weight_zero_point"].T).view(np.uint32)
            zero = stored[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
            zero = zero.reshape(4, 40).T
        scale = tensors["weight_scale"].astype(np.float32)
        expected = (q - zero[:, index].astype(np.float32)) * scale[:, index]
        ordered = layer({**tensors, "weight_g_idx": index})
        found = read(tmp_path / "m", ordered, **PACKED)["l.weight"]
        check(found, expected.astype(np.float32), label="compressed-tensors int4 with g_idx")
        with pytest.raises(InputError, match="an input is in group 4 of 4"):
            read(tmp_path / "m", {**ordered, "l.weight_g_idx": index + 1}, **PACKED)


@pytest.mark.parametrize("shape", [(40, 1), (1,), (40, 4)])
def test_int_quantized(shape: tuple[int, ...], tmp_path: Path) -> None:
    q = RANDOM.integers(-128, 128, (40, 128)).astype(np.int8)
    scale = RANDOM.uniform(0.01, 0.1, shape).astype(np.float16)
    size = 128 // (shape[1] if len(shape) > 1 else 1)
    wide = np.broadcast_to(scale.reshape(-1, shape[-1]), (40, 128 // size))
    expected = q * spread(wide, size)
    tensors = {"weight": q, "weight_scale": scale}
    found = read(tmp_path / "m", layer(tensors), **of("int-quantized"))["l.weight"]
    group = 0 if size == 128 else 32
    check(found, expected, label="compressed-tensors int8", group_size=group, bits=8)
    zeros = RANDOM.integers(-20, 20, shape).astype(np.int8)
    tensors["weight_zero_point"] = zeros
    found = read(tmp_path / "m", layer(tensors), **of("int-quantized"))["l.weight"]
    offsets = np.broadcast_to(zeros.reshape(-1, shape[-1]), (40, 128 // size))
    grid = {"group_size": 128 if size == 128 else 32, "symmetric": False, "bits": 8}
    expected = (q - spread(offsets, size)) * spread(wide, size)
    check(found, expected, label="compressed-tensors int8", **grid)


def test_float_quantized(tmp_path: Path) -> None:
    codes = ROWS.astype(ml_dtypes.float8_e4m3fn)
    for scale in (
        RANDOM.uniform(0.01, 0.1, (40, 1)).astype(np.float32),
        np.array([0.5], np.float32),
        RANDOM.uniform(0.01, 0.1, (2, 1)).astype(np.float32),
    ):
        tensors = {"weight": codes, "weight_scale": scale, "input_scale": scale}
        found = read(tmp_path / "m", layer(tensors), **of("float-quantized"))
        wide = scale if len(scale) != 2 else np.repeat(scale, 20, axis=0)
        expected = (codes.astype(np.float32) * wide).astype(np.float32)
        check(found["l.weight"], expected, label="fp8")


def test_float_formats_of_4_bits(tmp_path: Path) -> None:
    codes = e2m1_codes(ROWS)
    scale = RANDOM.uniform(0.5, 4, (40, 8)).astype(ml_dtypes.float8_e4m3fn)
    divisor = np.array([300.0], np.float32)
    tensors = {
        "weight_packed": pairs(codes),
        "weight_scale": scale,
        "weight_global_scale": divisor,
    }
    found = read(tmp_path / "m", layer(tensors), **of("nvfp4-pack-quantized"))["l.weight"]
    expected = e2m1_values(codes) * spread(scale.astype(np.float32) / divisor, 16)
    check(found, expected, label="nvfp4")
    powers = RANDOM.integers(120, 130, (40, 4)).astype(np.uint8)
    tensors = {"weight_packed": pairs(codes), "weight_scale": powers}
    found = read(tmp_path / "m", layer(tensors), **of("mxfp4-pack-quantized"))["l.weight"]
    expected = e2m1_values(codes) * spread(2.0 ** (powers.astype(np.float32) - 127), 32)
    check(found, expected, label="mxfp4", bits=8, group_size=32, symmetric=True)


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="format marlin-24 of compressed-tensors"):
        read(tmp_path / "m", {}, **of("marlin-24"))
    with pytest.raises(UnsupportedError, match="with transform_config"):
        read(tmp_path / "m", {}, **of("pack-quantized", transform_config={"a": 1}))
    tensors, _ = pack_quantized_layer(ROWS, 32, 4, symmetric=True)
    tensors["weight_shape"] = np.array([40, 999], np.int64)
    with pytest.raises(UnsupportedError, match=r"values \[40, 999\] packed to \[40, 16\]"):
        read(tmp_path / "m", layer(tensors), **PACKED)
    wrong = {"weight": ROWS.astype(np.int8), "weight_scale": np.ones((7, 1), np.float32)}
    with pytest.raises(InputError, match=r"shape \[7, 1\] beside 40 rows"):
        read(tmp_path / "m", layer(wrong), **of("int-quantized"))
