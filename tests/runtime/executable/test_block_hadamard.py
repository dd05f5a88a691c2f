"""The rotation of channels: orthogonal for every width, and undone by its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.executable.block_hadamard import BLOCKS, block_hadamard, largest_block
from tests.support.hadamard import rotation


@settings(deadline=None, max_examples=40)
@given(width=st.integers(16, 700), block=st.sampled_from(BLOCKS), rows=st.integers(0, 3))
def test_rows_are_multiplied_by_an_orthogonal_matrix(width: int, block: int, rows: int) -> None:
    if width < block:
        with pytest.raises(ValueError, match=f"{width} channels have no block of {block}"):
            block_hadamard(np.ones((rows, width)), block)
        return
    x = np.random.default_rng(width).standard_normal((rows, width))
    turned = block_hadamard(x, block)
    np.testing.assert_allclose(turned, x @ rotation(width, block), rtol=0, atol=1e-12)
    np.testing.assert_allclose(block_hadamard(turned, block, inverse=True), x, atol=1e-12)
    weight = np.random.default_rng(block).standard_normal((4, width))
    np.testing.assert_allclose(turned @ block_hadamard(weight, block).T, x @ weight.T, atol=1e-10)


@pytest.mark.parametrize("width", [16, 17, 31, 100, 300, 511, 576, 577, 640, 1536, 2880])
def test_no_channel_stays_alone(width: int) -> None:
    """The least that a block gives is √B; a block over others must not gather what they spread."""
    block = largest_block(width)
    one = np.abs(block_hadamard(np.eye(width), block))
    assert one.max() <= (1 if width % block == 0 else 2.5) / block**0.5


def test_the_largest_block_that_fits() -> None:
    found = [largest_block(width) for width in (1, 15, 16, 63, 64, 255, 256, 5000)]
    assert found == [0, 0, 16, 16, 64, 64, 256, 256]
    assert [largest_block(5000, most) for most in (16, 64, 100)] == [16, 64, 64]


def test_the_operand_and_its_type_stay() -> None:
    x = np.arange(32, dtype=np.float32)[None]
    before = x.copy()
    assert block_hadamard(x, 16).dtype == np.float32
    np.testing.assert_array_equal(x, before)


def test_a_row_has_the_same_bits_whatever_it_is_read_with() -> None:
    x = np.random.default_rng(0).standard_normal((50, 300)).astype(np.float32)
    together = block_hadamard(x, 64)
    for row in (0, 7, 49):
        np.testing.assert_array_equal(together[row], block_hadamard(x[row], 64))
