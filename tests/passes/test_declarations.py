"""What happens to a compile in which a pass finds nothing to do: an error, a warning, or nothing.

Recipes rely on it: docs/recipes.md.
"""

from __future__ import annotations

from optc.pipeline import registry

#: Without them the artifact would not be what its recipe promises.
REQUIRED = {
    "adapters",
    "allocate-activations",
    "allocate-bits",
    "allocate-kv",
    "balance-keys",
    "calibrate",
    "canonicalize",
    "cast-weights",
    "compute-type",
    "find-attention",
    "hidden-states",
    "kv-cache",
    "kv-slots",
    "medusa-heads",
    "propagate-errors",
    "prune-depth",
    "prune-heads",
    "prune-to-budget",
    "prune-weights",
    "prune-width",
    "quantize-static",
    "quantize-weights",
    "rotate",
    "smooth",
    "trained-weights",
    "vocab-trim",
}
#: A model of another build may have nothing for them; the user is told the nearest miss.
EXPECTED = {"fuse-gate-up", "fuse-norm-quantize", "fuse-qkv", "fuse-residual-norm", "fuse-rotary"}


def test_which_passes_must_find_something() -> None:
    passes = registry.passes()
    assert {name for name, one in passes.items() if one.required} == REQUIRED
    assert {name for name, one in passes.items() if one.expected} == EXPECTED
