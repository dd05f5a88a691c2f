"""Which engines are judged."""

from __future__ import annotations

import pytest

from benchmarks.peers import environments
from benchmarks.peers.conversion import COMMANDS
from benchmarks.peers.variants import VARIANTS
from benchmarks.quality_per_byte.engines.catalogue import chosen
from benchmarks.quality_per_byte.recipes import tvm_recipes


def test_every_recipe_and_every_peer_is_judged() -> None:
    found = chosen(None, None, [])
    ours = [variant.format for variant in found if variant.peer == "optc"]
    assert ours == [*tvm_recipes(), "int8-fused as given", "int4-fused as given"]
    assert {"int8-fused", "mixed-4", "kv-int4"} <= set(ours)
    peers = {variant.peer for variant in found} - {"optc"}
    assert peers == {variant.peer for variant in VARIANTS} - {"optc"}
    assert {"vllm", "ctranslate2", "llama.cpp", "ik_llama.cpp"} <= peers
    labels = [variant.label for variant in found]
    assert len(labels) == len(set(labels)), "each is judged once"


def test_what_is_measured_for_speed_is_judged() -> None:
    judged = {variant.label for variant in chosen(None, None, [])}
    assert {variant.label for variant in VARIANTS} <= judged


def test_parts_can_be_asked_for() -> None:
    found = chosen(["int8-fused"], ["vllm", "llama.cpp"], ["Q8", "W8"])
    labels = ["optc int8-fused", "llama.cpp Q8_0", "vllm W8A8"]
    assert [variant.label for variant in found] == labels
    assert chosen([], [], []) == []


@pytest.mark.parametrize("peer", sorted({v.peer for v in VARIANTS} - {"optc"}))
def test_every_peer_can_be_installed_and_converted_for(peer: str) -> None:
    assert peer in environments.PACKAGES
    assert peer in COMMANDS
