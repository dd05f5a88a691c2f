"""Biases by distance, as T5 has them, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.backends.tvm.bias_runs import bias_runs, zero_distance
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.errors import UnsupportedError
from tests.backends.tvm.attention_cases import MIXED, attend, oracle, part, sequences
from tests.backends.tvm.kernel_cases import TARGETS, isa_named, sqnr

#: Fewer distances than a tile has tokens, more than a partition has; beside all else.
CONFIGS = {
    "few": PagedAttention(4, 4, 32, 32, 1.0, distances=37),
    "one": PagedAttention(2, 1, 24, 40, 1.0, distances=31),
    "many": PagedAttention(3, 3, 24, 40, 0.3, softcap=9.0, distances=330, slopes=True, sinks=True),
}
BOUNDS = {"float32": (115, 2e-5), "bfloat16": (70, 1e-2), "int8": (55, 1e-2)}


@pytest.mark.parametrize(
    ("name", "dtype", "target"),
    [
        ("few", "float32", TARGETS[0]),
        ("many", "float32", TARGETS[1]),
        ("one", "bfloat16", TARGETS[1]),
        ("few", "int8", TARGETS[1]),
        pytest.param("many", "bfloat16", TARGETS[0], marks=pytest.mark.long),
    ],
)
def test_against_float64(name: str, dtype: str, target: str) -> None:
    config = replace(CONFIGS[name], kv_dtype=dtype)
    least, largest = BOUNDS[dtype]
    step = sequences(config, MIXED)
    out, expected = attend(config, isa_named(target), step, 16), oracle(config, step)
    assert sqnr(out, expected) > least
    assert np.abs(out - expected).max() < largest


def test_a_row_alone_has_the_same_bits() -> None:
    config, isa = CONFIGS["few"], isa_named(TARGETS[0])
    (sequence,) = sequences(config, [(9, 300)])
    whole = attend(config, isa, [sequence], 16)
    for row in (0, 4, 8):
        alone = attend(config, isa, [part(sequence, row, row + 1)], 32)
        np.testing.assert_array_equal(alone[0], whole[row])


def test_runs() -> None:
    runs = bias_runs(np.array([[1, 2, 3]], np.float32))
    assert runs.tolist() == [[3.0] * 15 + [3, 2, 1] + [1.0] * 15]
    assert runs[0, zero_distance(runs.shape[1]) - 1] == 2


def test_encoders_have_none() -> None:
    with pytest.raises(UnsupportedError, match="biases by distance"):
        replace(CONFIGS["few"], causal=False)
