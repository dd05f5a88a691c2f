"""The techniques in their order: each step has what the one before has, and one more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.variants import Variant

EAGER = "PyTorch eager, float32"
#: Batches of requests of equal length: a request waits for the longest of its batch.
STATIC: dict[str, Any] = {"prefix_cache": False}
_INT8 = Variant("optc", "int8-fused", 8, "")


@dataclass(frozen=True)
class Step:
    """A bar of the picture.

    Attributes:
        name: What was added.
        variant: How optc compiles the model; None is PyTorch.
        continuous: Requests enter and leave the batch one by one.
        serving: Settings of `optc.load`.
    """

    name: str
    variant: Variant | None
    continuous: bool = False
    serving: dict[str, Any] = field(default_factory=lambda: STATIC)


STEPS = (
    Step(EAGER, None),
    Step("compiled float32 engine, fused", Variant("optc", "fp32", 32, "")),
    Step("bfloat16", Variant("optc", "bf16-fused", 16, "")),
    Step(
        "int8 weights, 16-bit activations",
        Variant("optc", "int8-weights", 8, "", recipe="int8-fused",
                sets=("kv-cache.dtype=bfloat16", "quantize-weights.activation_bits=16")),
    ),
    Step(
        "int8 activations",
        Variant("optc", "int8-activations", 8, "", recipe="int8-fused",
                sets=("kv-cache.dtype=bfloat16",)),
    ),
    Step("int8 KV", _INT8),
    Step("continuous batching", _INT8, continuous=True),
    Step("prefix cache", _INT8, continuous=True, serving={"prefix_cache": True}),
    Step("speculation by n-grams", _INT8, continuous=True,
         serving={"prefix_cache": True, "speculate": "ngram"}),
)  # fmt: skip
