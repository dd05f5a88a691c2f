"""bitsandbytes in 8 and in 4 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.errors import InputError
from tests.importer.quantized.files import Array, read
from tests.importer.quantized.test_packed_integers import check, layer

RANDOM = np.random.default_rng(0)
METHOD = {"quant_method": "bitsandbytes"}
N, K, BLOCK = 24, 128, 64
LEVELS = np.sort(RANDOM.uniform(-1, 1, 16)).astype(np.float32)


def four_bits(nested: bool, **state: Any) -> tuple[dict[str, Array], Array]:
    codes = RANDOM.integers(0, 16, N * K).astype(np.uint8)
    largest = RANDOM.uniform(0.1, 1, N * K // BLOCK).astype(np.float32)
    stated: dict[str, Any] = {"blocksize": BLOCK, "shape": [N, K], "quant_type": "nf4"}
    tensors: dict[str, Array] = {
        "weight": ((codes[0::2] << 4) | codes[1::2])[:, None].astype(np.uint8),
        "weight.quant_map": LEVELS,
        "weight.absmax": largest,
    }
    if nested:
        table = np.linspace(-1, 1, 256, dtype=np.float32)
        picked = RANDOM.integers(0, 256, len(largest)).astype(np.uint8)
        scales = np.array([0.5, 0.25, 0.125], np.float32)
        tensors |= {
            "weight.absmax": picked,
            "weight.nested_absmax": scales,
            "weight.nested_quant_map": table,
        }
        stated |= {"nested_blocksize": 16, "nested_offset": 0.75}
        largest = table[picked] * np.repeat(scales, 16) + np.float32(0.75)
    text = json.dumps({**stated, **state}).encode()
    tensors["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8)
    expected = LEVELS[codes] * np.repeat(largest, BLOCK)
    return tensors, expected.reshape(N, K).astype(np.float32)


@pytest.mark.parametrize("nested", [False, True])
def test_four_bits(nested: bool, tmp_path: Path) -> None:
    tensors, expected = four_bits(nested)
    plain = {"norm.weight": np.ones(3, np.float32)}
    found = read(tmp_path / "m", layer(tensors) | plain, **METHOD)
    assert set(found) == {"l.weight", "norm.weight"}
    check(found["l.weight"], expected, label="bitsandbytes nf4")


def test_eight_bits(tmp_path: Path) -> None:
    codes = RANDOM.integers(-127, 128, (N, K)).astype(np.int8)
    largest = RANDOM.uniform(0.1, 1, N).astype(np.float32)
    tensors = {"weight": codes, "SCB": largest, "weight_format": np.zeros((), np.uint8)}
    found = read(tmp_path / "m", layer(tensors), **METHOD)
    expected = codes * (largest / np.float32(127))[:, None]
    grid = {"bits": 8, "group_size": 0, "symmetric": True}
    check(found["l.weight"], expected, label="bitsandbytes int8", **grid)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"shape": None}, "does not state shape and blocksize"),
        ({"shape": [N, -K]}, "does not state shape and blocksize"),
        ({"blocksize": 1000}, "its blocks do not fit its shape"),
        ({"nested_offset": "x"}, "its blocks do not fit its shape"),
    ],
)
def test_damaged_states_are_refused(state: Any, message: str, tmp_path: Path) -> None:
    tensors, _ = four_bits(nested=False, **state)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "m", layer(tensors), **METHOD)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    tensors, _ = four_bits(nested=False)
    state = "weight.quant_state.bitsandbytes__nf4"
    damaged = {**tensors, state: np.frombuffer(b"{", np.uint8)}
    with pytest.raises(InputError, match="it is not JSON"):
        read(tmp_path / "m", layer(damaged), **METHOD)
    del tensors[state]
    with pytest.raises(InputError, match=r"l\.weight: quant_state is missing"):
        read(tmp_path / "m", layer(tensors), **METHOD)
