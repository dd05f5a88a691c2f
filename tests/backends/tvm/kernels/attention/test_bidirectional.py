"""Rows that see what lies behind them: encoders; and rows that see the states of an encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.errors import UnsupportedError
from tests.backends.tvm.attention_cases import attend, oracle, sequences
from tests.backends.tvm.kernel_cases import TARGETS, isa_named, sqnr

#: All rows of each sequence: of one token, of less than a tile, of several partitions.
RAGGED = [(n, n) for n in (1, 5, 37, 16, 300, 1, 257, 17)]
SMALL = PagedAttention(4, 4, 32, 32, 32**-0.5, causal=False)
CONFIGS = {
    "full": SMALL,
    "shared-heads": replace(SMALL, kv_heads=2, key_dim=24, value_dim=40),
    "window": replace(SMALL, window=9),
    "wide-window": replace(SMALL, window=65, heads=3, kv_heads=3, key_dim=64, value_dim=64),
}
BOUNDS = {"float32": (120, 1e-5), "bfloat16": (80, 4e-3), "int8": (65, 4e-3)}


@pytest.mark.parametrize(
    ("name", "dtype", "target"),
    [
        *((name, "float32", TARGETS[at % 2]) for at, name in enumerate(CONFIGS)),
        ("full", "bfloat16", TARGETS[1]),
        ("shared-heads", "bfloat16", TARGETS[0]),
        pytest.param("window", "bfloat16", TARGETS[1], marks=pytest.mark.long),
        pytest.param("wide-window", "bfloat16", TARGETS[0], marks=pytest.mark.long),
        ("window", "int8", TARGETS[0]),
        ("full", "int8", TARGETS[1]),
    ],
)
def test_against_float64(name: str, dtype: str, target: str) -> None:
    config = replace(CONFIGS[name], kv_dtype=dtype)
    least, largest = BOUNDS[dtype]
    step = sequences(config, RAGGED)
    out = attend(config, isa_named(target), step, 16, padding=2)
    expected = oracle(config, step)
    assert not out[-2:].any()
    assert sqnr(out[:-2], expected) > least
    assert np.abs(out[:-2] - expected).max() < largest


#: Rows of sequences, and states that they attend to: more of them, fewer, as many.
STATES = [(1, 257), (5, 3), (17, 300), (1, 16), (37, 1), (16, 16)]


@pytest.mark.parametrize(
    ("dtype", "target"), [("float32", TARGETS[0]), ("bfloat16", TARGETS[1]), ("int8", TARGETS[0])]
)
def test_states_of_an_encoder(dtype: str, target: str) -> None:
    config = replace(SMALL, kv_dtype=dtype, group=1, groups=2, key_dim=64, value_dim=64)
    least, largest = BOUNDS[dtype]
    step = sequences(config, STATES)
    out, expected = attend(config, isa_named(target), step, 16), oracle(config, step)
    assert sqnr(out, expected) > least
    assert np.abs(out - expected).max() < largest


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sequence_alone_has_the_same_bits(dtype: str) -> None:
    config, isa = replace(SMALL, kv_dtype=dtype), isa_named(TARGETS[1])
    step = sequences(config, RAGGED)
    whole = attend(config, isa, step, 16)
    start = 0
    for sequence in step:
        alone = attend(config, isa, [sequence], 16)
        np.testing.assert_array_equal(alone, whole[start : start + len(alone)])
        start += len(alone)


@pytest.mark.parametrize("field", [{"chunk": 8}, {"slopes": True}])
def test_what_only_decoders_have_is_refused(field: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match="belongs to encoders"):
        replace(SMALL, **field)  # type: ignore[arg-type]
