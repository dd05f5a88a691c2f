"""fp8 by blocks, mxfp4 experts, and ModelOpt's FP8 and NVFP4."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from optc.errors import InputError, UnsupportedError
from tests.importer.conversion.arrays import whole
from tests.importer.quantized.files import e2m1_codes, e2m1_values, pairs, read, spread
from tests.importer.quantized.test_packed_integers import check, layer

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((40, 96)).astype(np.float32)
CODES = ROWS.astype(ml_dtypes.float8_e4m3fn)
PLAIN = {"norm.weight": np.ones(96, np.float32), "embed.weight": ROWS}


def test_blocks_of_fp8_are_cut_at_the_edges(tmp_path: Path) -> None:
    scale = RANDOM.uniform(0.1, 1, (3, 2)).astype(np.float32)
    wide = np.repeat(np.repeat(scale, 16, axis=0), 64, axis=1)[:40, :96]
    tensors = layer({"weight": CODES, "weight_scale_inv": scale}) | PLAIN
    settings = {"quant_method": "fp8", "weight_block_size": [16, 64]}
    found = read(tmp_path / "m", tensors, **settings)
    assert set(found) == {"l.weight", *PLAIN}
    check(found["l.weight"], CODES.astype(np.float32) * wide, label="fp8")
    with pytest.raises(InputError, match=r"shape \[3, 2\], not \[2, 2\]"):
        read(tmp_path / "m", tensors, **{**settings, "weight_block_size": [32, 64]})
    with pytest.raises(InputError, match="weight_block_size is 16, not two numbers"):
        read(tmp_path / "m", tensors, **{**settings, "weight_block_size": 16})


def test_one_scale_of_the_whole(tmp_path: Path) -> None:
    scale = np.array(0.25, np.float32)
    for settings, end in (
        ({"quant_method": "fp8"}, "weight_scale_inv"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "weight_scale"),
    ):
        tensors = layer({"weight": CODES, end: scale}) | PLAIN
        found = read(tmp_path / "m", tensors, **settings)
        assert set(found) == {"l.weight", *PLAIN}
        check(found["l.weight"], CODES.astype(np.float32) * scale, label="fp8")


def test_nvfp4_of_modelopt(tmp_path: Path) -> None:
    codes = e2m1_codes(ROWS)
    scale = RANDOM.uniform(0.5, 4, (40, 6)).astype(ml_dtypes.float8_e4m3fn)
    factor = np.array(0.01, np.float32)
    tensors = {
        "weight": pairs(codes),
        "weight_scale": scale,
        "weight_scale_2": factor,
        "input_scale": factor,
    }
    settings = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    found = read(tmp_path / "m", layer(tensors) | PLAIN, **settings)
    expected = e2m1_values(codes) * spread(scale.astype(np.float32) * factor, 16)
    check(found["l.weight"], expected, label="nvfp4")
    assert set(found) == {"l.weight", "l.input_scale", *PLAIN}
    tensors["weight_scale_2"] = np.ones(3, np.float32)
    with pytest.raises(InputError, match=r"shape \[3\], not one number"):
        read(tmp_path / "m", layer(tensors), **settings)
    with pytest.raises(UnsupportedError, match="ModelOpt's W4A8_AWQ"):
        read(tmp_path / "m", {}, **{**settings, "quant_algo": "W4A8_AWQ"})


def test_experts_of_mxfp4(tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((3, 4, 64)).astype(np.float32)
    codes = e2m1_codes(rows)
    powers = RANDOM.integers(120, 130, (3, 4, 2)).astype(np.uint8)
    wide = np.repeat(2.0 ** (powers.astype(np.float32) - 127), 32, axis=2)
    expected = (e2m1_values(codes) * wide).swapaxes(1, 2)
    tensors = {
        "experts.gate_up_proj_blocks": pairs(codes).reshape(3, 4, 2, 16),
        "experts.gate_up_proj_scales": powers,
        "experts.gate_up_proj_bias": np.ones((3, 4), np.float32),
    }
    found = read(tmp_path / "m", tensors, quant_method="mxfp4")
    assert set(found) == {"experts.gate_up_proj", "experts.gate_up_proj_bias"}
    weight = found["experts.gate_up_proj"]
    assert weight.shape == (3, 64, 4)
    np.testing.assert_array_equal(whole(weight), expected)
    box = ((1, 3), (5, 60), (1, 3))
    np.testing.assert_array_equal(weight.read_box(box), expected[1:3, 5:60, 1:3])
    assert weight.given is not None
    assert weight.given.label == "mxfp4"
    tensors["experts.gate_up_proj_blocks"] = np.zeros((3, 4, 2, 8), np.uint8)
    with pytest.raises(InputError, match="blocks of 16 values, not 32"):
        read(tmp_path / "m", tensors, quant_method="mxfp4")
