from __future__ import annotations

from dataclasses import replace as replace_layer
from typing import Any

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


def test_a_type_of_keys_and_values_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="the KV type 'float8' is none of float32, float16"):
        LayerKV(0, 1, 4, 4, "float8")


def test_layers_are_alike_whatever_their_groups() -> None:
    one = LayerKV(0, 2, 8, 4, "float16")
    assert one.alike(replace_layer(one, group=3))
    changes: list[dict[str, Any]] = [
        {"kv_heads": 1},
        {"key_dim": 4},
        {"value_dim": 8},
        {"dtype": "float32"},
    ]
    for change in changes:
        assert not one.alike(replace_layer(one, **change))


@pytest.mark.parametrize("listed", [((0,), ()), ((0, 1), (1,)), ((1,), (0,)), ((0,), (1, 2))])
def test_groups_list_the_layers_that_say_so(listed: tuple[tuple[int, ...], ...]) -> None:
    layers = (LayerKV(0, 1, 4, 4, "float16"), LayerKV(1, 2, 8, 4, "float32"))
    groups = tuple(KVGroup(0, one) for one in listed)
    with pytest.raises(ValueError, match="are not those that 'layers' puts there"):
        StepInterface(16, 64, 8, 4, 4, 16, True, groups, layers)
