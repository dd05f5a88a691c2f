from __future__ import annotations

import pytest
from msgspec.structs import replace

from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 160), ("float16", 80), ("bfloat16", 80), ("int8", 56)]
)
def test_bytes_of_a_token_in_a_layer(dtype: str, size: int) -> None:
    """Two heads of 12 + 8 elements; int8 has a float32 scale for the keys and one for the values
    of each head."""
    assert LayerKV(0, 2, 12, 8, dtype).bytes_per_token == size


def test_bytes_of_a_token_of_int4() -> None:
    """Half a byte a value, a byte for each 16, and two for each scale, of K and V of each head."""
    assert LayerKV(0, 2, 64, 32, "int4").bytes_per_token == 2 * (48 + 6 + 4)


def test_bytes_of_a_token_in_all_layers() -> None:
    layers = (LayerKV(0, 1, 4, 4, "float16"), LayerKV(1, 2, 8, 4, "float32"))
    groups = (KVGroup(0, (0,)), KVGroup(8, (1,)))
    spec = StepInterface(16, 64, 8, 4, 4, 16, True, groups, layers)
    assert spec.kv_bytes_per_token == 16 + 96
    assert spec.kv_bytes_beyond_windows == 16
    encoded = replace(spec, encoded=3)  # what its last group holds is no token's
    assert (encoded.kv_bytes_per_token, encoded.kv_bytes_beyond_windows) == (16, 16)
    assert not spec.tree
    assert not spec.samples
