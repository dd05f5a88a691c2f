"""Keys and values of few bits: groups by definition, int4 and int8 as pools hold them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.proof.kv_bits.codes import Array, Codes, Float32, Int8, IntegerGroups
from tests.support import oracle


def rows(tokens: int = 70, heads: int = 2, dim: int = 64) -> Array:
    return np.random.default_rng(0).normal(size=(tokens, heads, dim)).astype(np.float32)


def test_int4_and_int8_are_what_pools_hold() -> None:
    x = rows()
    np.testing.assert_array_equal(IntegerGroups().represented(x), oracle.represented(x, "int4"))
    np.testing.assert_array_equal(Int8().represented(x), oracle.represented(x, "int8"))
    assert IntegerGroups().bits_per_value == 4.75
    assert Float32().represented(x) is x


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_integer_groups_have_no_more_levels_than_their_bits(bits: int) -> None:
    found = IntegerGroups(bits).represented(rows()).reshape(-1, 16)
    levels = max(len(np.unique(group)) for group in found)
    assert 2 ** (bits - 1) < levels <= 2**bits


def test_a_bit_more_is_nearer() -> None:
    x = rows()
    errors = [float(np.square(IntegerGroups(b).represented(x) - x).mean()) for b in (2, 3, 4)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


@pytest.mark.parametrize("axis", ["token", "channel"])
def test_each_group_has_its_own_levels(axis: str) -> None:
    x, codes = rows(), Codes(2, axis)
    found = codes.represented(x)
    for start in (0, 32, 64):  # the last group of tokens has 6
        group = (slice(start, start + 32), 1, 5) if axis == "channel" else (7, 1, slice(0, 32))
        low, high = x[group].min(), x[group].max()
        levels = low + np.arange(4) * (high - low) / 3
        nearest = levels[np.abs(x[group][:, None] - levels).argmin(1)]
        np.testing.assert_allclose(found[group], nearest, atol=4e-3)
    assert codes.tokens == (32 if axis == "channel" else 1)
    assert codes.bits_per_value == 3
