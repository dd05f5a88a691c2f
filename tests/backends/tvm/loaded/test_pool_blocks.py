"""Blocks of the KV pools as opaque bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from optc.backends.tvm.loaded.pools import KVPools
from optc.errors import InputError
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface

LAYERS = (
    LayerKV(0, 2, 8, 16, "float32"),
    LayerKV(1, 1, 16, 16, "bfloat16"),
    LayerKV(0, 3, 8, 8, "int8"),
    LayerKV(0, 1, 32, 64, "int4"),
)
SPEC = StepInterface(
    vocab_size=8,
    max_context=64,
    max_rows=8,
    max_sequences=2,
    max_logit_rows=2,
    block_multiple=16,
    batch_invariant=True,
    groups=(KVGroup(0, (0, 2, 3)), KVGroup(32, (1,))),
    layers=LAYERS,
)


@pytest.mark.parametrize("block_size", [16, 32])
def test_blocks_move_whole_and_leave_others_alone(block_size: int) -> None:
    rng = np.random.default_rng(0)
    pools = KVPools(SPEC, lambda array: array)
    pools.allocate((5, 4), block_size)
    arrays: list[np.ndarray[Any, Any]] = pools.tensors
    for array in arrays:
        array.view(np.uint8)[...] = rng.integers(0, 256, array.view(np.uint8).shape)
    before = [array.copy() for array in arrays]
    data = pools.read(0, np.array([1, 3], np.int32))
    assert data.dtype == np.uint8
    assert data.shape == (2, sum(before[i].nbytes for i in (0, 1, 4, 5, 6, 7)) // 5)
    pools.write(0, np.array([4, 0], np.int32), data)
    tiles = block_size // 16
    for index, (old, new) in enumerate(zip(before, arrays, strict=True)):
        expected = old.copy()
        if index in (0, 1, 4, 5, 6, 7):
            for source, target in ((1, 4), (3, 0)):
                expected[target * tiles : (target + 1) * tiles] = old[
                    source * tiles : (source + 1) * tiles
                ]
        assert np.array_equal(new.view(np.uint8), expected.view(np.uint8))


def test_pools_of_some_layers_serve_another_engine() -> None:
    owner = KVPools(SPEC, lambda array: array)
    layers = (LAYERS[2], replace(LAYERS[1], group=1), LAYERS[3])
    spec = structs.replace(SPEC, groups=(KVGroup(0, (0, 2)), KVGroup(32, (1,))), layers=layers)
    pools = KVPools(spec, lambda array: array)
    with pytest.raises(InputError, match=r"^share_kv: the target has no KV pools$"):
        pools.share(owner, (2, 1, 3))
    owner.allocate((5, 4), 32)
    pools.allocate((2, 2), 16)
    pools.share(owner, (2, 1, 3))
    expected = [owner.tensors[2 * layer + i] for layer in (2, 1, 3) for i in (0, 1)]
    assert all(mine is its for mine, its in zip(pools.tensors, expected, strict=True))
    assert pools.block_size == 32
    assert [len(scratch) for scratch in pools.scratch] == [0, 0]
    pools.check_slots(0, np.array([159], np.int32), np.array([0], np.int32))
    with pytest.raises(InputError, match="slots must lie within 0 and 127"):
        pools.check_slots(1, np.array([159], np.int32), np.array([0], np.int32))
    pools.release()
    assert len(owner.tensors) == 2 * len(LAYERS), "they are the owner's"
