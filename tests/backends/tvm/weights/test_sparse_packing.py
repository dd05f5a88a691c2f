"""The sparse layout, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.weights.sparse_packing import (
    SEGMENT,
    count_nonzeros,
    pack_sparse,
    starts,
)
from tests.backends.tvm.weights.unpacking import unpack_sparse


def _weight(
    n: int, k: int, zeros: float, seed: int = 0
) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (n, k), np.int8)
    weight[rng.random((n, k)) < zeros] = 0
    return weight


@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n", "k"), [(64, 32), (128, 512), (100, 77), (1, 1), (70, 300)])
def test_weights_round_trip_and_zeros_and_padding_have_no_values(
    n: int, k: int, zeros: float
) -> None:
    weight = _weight(n, k, zeros)
    mask, values = pack_sparse(weight)
    first = starts(count_nonzeros(weight))
    blocks, padded = -(-n // 64), -(-k // 32) * 32
    assert (mask.dtype, mask.shape) == (np.uint64, (blocks, padded // 4, 4))
    assert (first.dtype, first.shape) == (np.int64, (blocks, -(-k // SEGMENT), 4))
    assert len(values) == np.count_nonzero(weight)
    back = unpack_sparse(mask, first, values)
    np.testing.assert_array_equal(back[:n, :k], weight)
    assert not back[n:].any()
    assert not back[:, k:].any()


def test_bits_lie_by_channels_and_values_by_vectors_of_sixteen() -> None:
    weight = _weight(128, 64, 0.6, seed=1)
    mask, values = pack_sparse(weight)
    for n, k in [(0, 0), (17, 5), (63, 62), (64, 63), (127, 30)]:
        bit = int(mask[n // 64, k // 4, n % 64 // 16]) >> (n % 16 * 4 + k % 4) & 1
        assert bit == (weight[n, k] != 0)
    # vector by vector, step by step of four input channels, channel by channel
    expected = [
        weight[16 * vector + channel, 4 * step + within]
        for vector in range(8)
        for step in range(16)
        for channel in range(16)
        for within in range(4)
    ]
    np.testing.assert_array_equal(
        values.astype(int) - 128, [int(value) for value in expected if value]
    )


def test_blocks_packed_one_by_one_make_the_whole() -> None:
    weight = _weight(200, 600, 0.5, seed=2)
    parts = [weight[at : at + 64] for at in range(0, 200, 64)]
    whole = pack_sparse(weight)
    packed = [pack_sparse(part) for part in parts]
    for index in range(2):
        np.testing.assert_array_equal(np.concatenate([p[index] for p in packed]), whole[index])
    counts = np.concatenate([count_nonzeros(part) for part in parts])
    np.testing.assert_array_equal(counts, count_nonzeros(weight))
    assert counts.sum() == len(whole.values)


def test_reading_can_start_at_each_segment() -> None:
    weight = _weight(128, 600, 0.5, seed=3)
    mask, values = pack_sparse(weight)
    first = starts(count_nonzeros(weight))
    for block, segment, vector in [(0, 0, 0), (0, 1, 0), (0, 2, 3), (1, 0, 0), (1, 2, 2)]:
        channel, k = 64 * block + 16 * vector, SEGMENT * segment
        step = weight[channel : channel + 16, k : k + 4].reshape(-1)
        found = step[step != 0]
        at = first[block, segment, vector]
        np.testing.assert_array_equal(values[at : at + len(found)].astype(int) - 128, found)
        assert mask[block, k // 4, vector] == sum(1 << i for i in np.flatnonzero(step).tolist())
