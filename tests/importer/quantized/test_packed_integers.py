"""GPTQ and AWQ layers as their definitions write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.conversion.tensor import Tensor
from tests.importer.quantized.files import Array, Float32, gptq_layer, groups, packed, read, spread

ROWS = np.random.default_rng(0).standard_normal((40, 128)).astype(np.float32)
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}


def layer(tensors: dict[str, Array], name: str = "l") -> dict[str, Array]:
    return {f"{name}.{end}": array for end, array in tensors.items()}


def check(weight: Tensor, expected: Float32, **grid: Any) -> None:
    """Numbers by rows and boxes; the grid of the same numbers, if there is one."""
    assert weight.shape == expected.shape
    np.testing.assert_array_equal(weight.read_rows(0, len(expected)), expected)
    np.testing.assert_array_equal(weight.read_rows(3, 17), expected[3:17])
    np.testing.assert_array_equal(weight.read_box(((5, 9), (2, 40))), expected[5:9, 2:40])
    assert weight.given is not None
    assert weight.given.label == grid.pop("label")
    rows = weight.given.rows
    if not grid:
        assert rows is None
        return
    assert rows is not None
    assert {key: getattr(rows, key) for key in grid} == grid
    np.testing.assert_array_equal(rows.floats(1, 12), expected[1:12])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_gptq(bits: int, symmetric: bool, version: str, tmp_path: Path) -> None:
    offset = int(version == "gptq")
    rows = np.abs(ROWS) - 0.1 if not symmetric else ROWS
    tensors, expected = gptq_layer(rows, 64, bits, symmetric=symmetric, offset=offset)
    settings = {**GPTQ, "bits": bits, "sym": symmetric, "checkpoint_format": version}
    if not symmetric and offset:  # zero points of 0 are not written in this format
        tensors, expected = gptq_layer(-rows, 64, bits, symmetric=False)
    found = read(tmp_path / "m", layer(tensors) | {"n": np.ones(3, np.float32)}, **settings)
    assert set(found) == {"l.weight", "n"}
    grid = {"bits": bits, "group_size": 64, "symmetric": symmetric}
    check(found["l.weight"], expected, label=f"gptq int{bits}", **grid)


def test_gptq_of_2_bits_is_a_grid_of_4(tmp_path: Path) -> None:
    tensors, expected = gptq_layer(ROWS[:32], 32, 2, symmetric=True)
    found = read(tmp_path / "m", layer(tensors), **{**GPTQ, "bits": 2, "sym": True})
    check(found["l.weight"], expected, label="gptq int2", bits=4, group_size=32, symmetric=True)


def test_gptq_whose_groups_are_out_of_order_is_decoded(tmp_path: Path) -> None:
    tensors, plain = gptq_layer(ROWS, 64, 4, symmetric=True)
    order = np.random.default_rng(1).permutation(tensors["g_idx"])
    tensors["g_idx"] = order
    scale = tensors["scales"].T.astype(np.float32)
    q = plain / spread(scale, 64)
    expected = (np.rint(q) * scale[:, order]).astype(np.float32)
    found = read(tmp_path / "m", layer(tensors), **GPTQ)["l.weight"]
    check(found, expected, label="gptq int4 with desc_act")
    tensors["g_idx"] = order + 1
    with pytest.raises(InputError, match=r"l\.g_idx: an input is in group 2 of 2"):
        read(tmp_path / "m", layer(tensors), **GPTQ)


def test_channels_and_large_groups_get_the_groups_of_engines(tmp_path: Path) -> None:
    tensors, expected = gptq_layer(ROWS, 128, 4, symmetric=True)
    found = read(tmp_path / "m", layer(tensors), **{**GPTQ, "sym": True})["l.weight"]
    check(found, expected, label="gptq int4", group_size=128, bits=4)
    wide = np.concatenate([ROWS, ROWS, ROWS], axis=1)  # 384 columns
    tensors, expected = gptq_layer(wide, 384, 4, symmetric=True)
    found = read(tmp_path / "m", layer(tensors), **{**GPTQ, "sym": True})["l.weight"]
    check(found, expected, label="gptq int4", group_size=128, bits=4)
    tensors, expected = gptq_layer(ROWS, 16, 4, symmetric=True)
    found = read(tmp_path / "m", layer(tensors), **GPTQ)["l.weight"]
    check(found, expected, label="gptq int4")


def test_zero_points_beyond_the_grid_are_refused(tmp_path: Path) -> None:
    tensors, _ = gptq_layer(ROWS, 64, 4, symmetric=True)
    tensors["qzeros"] = np.full_like(tensors["qzeros"], -1)  # 15 + 1
    for symmetric, bounds in ((False, "0 to 15"), (True, "8 to 8")):
        found = read(tmp_path / "m", layer(tensors), **{**GPTQ, "sym": symmetric})
        with pytest.raises(InputError, match=f"zero point is 16, beyond {bounds}"):
            found["l.weight"].read_rows(0, 2)


def test_scales_beyond_float16_are_refused(tmp_path: Path) -> None:
    tensors, _ = gptq_layer(ROWS, 64, 4, symmetric=True)
    tensors["scales"] = tensors["scales"].astype(np.float32) * 1e9
    found = read(tmp_path / "m", layer(tensors), **{**GPTQ, "sym": True})
    with pytest.raises(InputError, match="scales that no float16 holds"):
        found["l.weight"].read_rows(0, 1)


def awq_layer(rows: Float32, size: int) -> tuple[dict[str, Array], Float32]:
    q, scale, zero = groups(rows, size, 4, symmetric=False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def by_order(values: Array) -> Array:
        return packed(values.reshape(len(values), -1, 8)[:, :, order].reshape(values.shape), 4)

    tensors = {"qweight": by_order(q.T), "qzeros": by_order(zero.T), "scales": scale.T}
    return tensors, (q - spread(zero, size)) * spread(scale, size)


def test_awq(tmp_path: Path) -> None:
    tensors, expected = awq_layer(ROWS, 32)
    found = read(tmp_path / "m", layer(tensors), **AWQ)["l.weight"]
    check(found, expected, label="awq int4", bits=4, group_size=32, symmetric=False)


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    tensors, _ = awq_layer(ROWS, 32)
    with pytest.raises(UnsupportedError, match="AWQ of version gemv with 4 bits"):
        read(tmp_path / "m", layer(tensors), **{**AWQ, "version": "gemv"})
    with pytest.raises(UnsupportedError, match="weights of 3 bits in words of 32"):
        read(tmp_path / "m", {}, **{**GPTQ, "bits": 3})
    with pytest.raises(InputError, match="bits is None, not a whole number"):
        read(tmp_path / "m", {}, quant_method="gptq")
    for end, array, message in (
        ("scales", None, "scales is missing"),
        ("qzeros", np.zeros((4, 9), np.int32), r"shape \[4, 9\], not \[4, 5\]"),
        ("qweight", np.zeros((128, 5), np.int64), "is I64 of shape"),
    ):
        damaged = {key: one for key, one in {**tensors, end: array}.items() if one is not None}
        with pytest.raises(InputError, match=message):
            read(tmp_path / "m", layer(damaged), **AWQ)
    with pytest.raises(InputError, match="is there quantized and as floats"):
        read(tmp_path / "m", layer(tensors) | {"l.weight": np.ones(3, np.float32)}, **AWQ)
