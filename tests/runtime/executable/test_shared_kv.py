"""Which drafts can lie in the pools of their target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.runtime.executable.shared_kv import can_share, shared_groups
from tests.runtime.support.toy import toy_spec


def layer(group: int, dtype: str = "int8") -> LayerKV:
    return LayerKV(group, 2, 16, 16, dtype)


#: Layers 0 and 2 see all tokens, 1 and 3 a window.
TARGET = structs.replace(
    toy_spec(block_multiple=16),
    groups=(KVGroup(0, (0, 2)), KVGroup(32, (1, 3))),
    layers=(layer(0), layer(1), layer(0), layer(1)),
)
WHOLE = structs.replace(TARGET, shared_kv=(0, 1, 2, 3))
#: A draft of layers 1 and 3.
WINDOWED = structs.replace(
    TARGET, groups=(KVGroup(32, (0, 1)),), layers=(layer(0), layer(0)), shared_kv=(1, 3)
)


@pytest.mark.parametrize(
    ("draft", "groups"),
    [
        (WHOLE, (0, 1)),
        (WINDOWED, (1,)),
        (structs.replace(WHOLE, block_multiple=4), (0, 1)),
        (structs.replace(WHOLE, max_context=8, max_rows=2, tree=True), (0, 1)),
    ],
)
def test_groups_of_the_target_by_those_of_the_draft(
    draft: StepInterface, groups: tuple[int, ...]
) -> None:
    assert can_share(draft, TARGET)
    assert shared_groups(draft, TARGET) == groups


@pytest.mark.parametrize(
    ("draft", "change"),
    [
        (TARGET, {}),
        (WHOLE, {"shared_kv": (0, 1, 2)}),
        (WHOLE, {"shared_kv": (0, 1, 2, 4)}),
        (WHOLE, {"shared_kv": (1, 0, 3, 2)}),
        (WINDOWED, {"shared_kv": (1, 2)}),
        (WINDOWED, {"groups": (KVGroup(16, (0, 1)),)}),
        (WINDOWED, {"layers": (layer(0), layer(0, "int4"))}),
        (WINDOWED, {"layers": (layer(0), replace(layer(0), kv_heads=1))}),
        (WHOLE, {"kv_layout": "slots"}),
        (WHOLE, {"block_multiple": 32}),
    ],
)
def test_what_cannot_be_shared(draft: StepInterface, change: dict[str, Any]) -> None:
    other = structs.replace(draft, **change)
    assert not can_share(other, TARGET)
    with pytest.raises(ValueError, match="cannot share"):
        shared_groups(other, TARGET)


def test_a_target_with_slots_shares_nothing() -> None:
    assert not can_share(WHOLE, structs.replace(TARGET, kv_layout="slots"))
