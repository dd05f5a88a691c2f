"""The digest of a spec tells every other spec, and outlives fields that are added later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from optc.artifact.spec_digest import spec_digest
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from tests.artifact.toy import toy_spec

ADAPTERS = AdapterSpec(2, 4, (AdapterModule(8, 8, (AdapterPart("q", 0, 8),)),))
OTHERS: list[dict[str, Any]] = [
    *({name: 1} for name in ("vocab_size", "max_context", "max_rows", "max_sequences")),
    *({name: 1} for name in ("max_logit_rows", "block_multiple")),
    *({name: True} for name in ("tree", "samples")),
    {"batch_invariant": False},
    {"groups": (KVGroup(8, (0,)), KVGroup(0, (1,)))},
    {"layers": (LayerKV(0, 1, 8, 8, "float32"), LayerKV(1, 1, 8, 16, "float32"))},
    {"layers": (LayerKV(0, 1, 8, 8, "float32"), LayerKV(1, 1, 8, 8, "int8"))},
    {"accept_rates": ((0.5,),)},
    {"kv_layout": "slots"},
    {"encoded": 1500},
    {"adapters": ADAPTERS},
    {"adapters": replace(ADAPTERS, rank=8)},
]


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: next(iter(change)))
def test_every_field_counts(change: dict[str, Any]) -> None:
    assert spec_digest(structs.replace(toy_spec(), **change)) != spec_digest(toy_spec())


def test_digests_stay_what_they_are() -> None:
    """They are in the code of engines, which two releases are to compile to the same bytes."""
    more = structs.replace(toy_spec(), accept_rates=((0.5,),), kv_layout="slots", adapters=ADAPTERS)
    found = [spec_digest(toy_spec()).hex()[:16], spec_digest(more).hex()[:16]]
    assert found == ["f17da0e2541de4fa", "85231780e73b08c0"]


def test_the_digest_is_of_the_values() -> None:
    assert spec_digest(structs.replace(toy_spec(), shared_kv=(0, 1))) == spec_digest(toy_spec())
    assert spec_digest(toy_spec()) == spec_digest(toy_spec())
    assert len(spec_digest(toy_spec())) == 32
    assert spec_digest(toy_spec(), {"a": (1, 2)}) == spec_digest(toy_spec(), {"a": [1, 2]})
    assert spec_digest(toy_spec(), [1]) != spec_digest(toy_spec(), [2])
    assert spec_digest(toy_spec(), {"a": 1}) != spec_digest(toy_spec(), {"a": 2})


class LaterSpec(StepInterface, frozen=True, tag="step"):
    """As the interface may be one day."""

    novelty: int = 0


def test_a_field_that_is_added_changes_nothing_at_its_default() -> None:
    later = LaterSpec(**structs.asdict(toy_spec()))
    assert spec_digest(later) == spec_digest(toy_spec())
    assert spec_digest(structs.replace(later, novelty=1)) != spec_digest(toy_spec())
