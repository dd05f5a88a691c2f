"""The engines that are judged on real models."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers import gguf_models, ik_llama
from benchmarks.peers.variants import VARIANTS, Variant
from benchmarks.quality_per_byte.recipes import tvm_recipes

#: Formats beside those that `benchmarks.peers` measures the speed of, by peer.
_MORE = {
    "llama.cpp": ("F32", gguf_models.GIVEN, "Q4_1", "IQ4_NL", "IQ3_M", "Q2_K", "IQ2_M"),
    ik_llama.NAME: ("F32", "IQ4_KT", "IQ3_KT", "IQ2_K"),
    "onnxruntime-genai": ("fp32",),
    "openvino-genai": ("fp32",),
    "ctranslate2": ("float32",),
}


#: Recipes that compile the GGUF file, too, whose coarse grids they keep.
_GIVEN = ("int8-fused", "int4-fused")


def chosen(
    names: Sequence[str] | None, peers: Sequence[str] | None, only: Sequence[str]
) -> list[Variant]:
    """optc's recipes ``names`` (None: all, and those that compile the file as it came), then
    formats of ``peers`` (None: all) whose name has one of the texts ``only`` (none: all)."""
    given = (f"{name} {gguf_models.GIVEN}" for name in _GIVEN)
    every = [*tvm_recipes(), *given] if names is None else names
    ours = [Variant("optc", name, 0, "") for name in every]
    return [*ours, *(v for v in _theirs() if _wanted(v, peers, only))]


def _theirs() -> list[Variant]:
    known = [variant for variant in VARIANTS if variant.peer != "optc"]
    more = [Variant(peer, name, 0, "") for peer, names in _MORE.items() for name in names]
    order = list(dict.fromkeys(variant.peer for variant in known))
    return sorted([*known, *more], key=lambda variant: order.index(variant.peer))


def _wanted(variant: Variant, peers: Sequence[str] | None, only: Sequence[str]) -> bool:
    named = peers is None or variant.peer in peers
    return named and (not only or any(text in variant.format for text in only))
