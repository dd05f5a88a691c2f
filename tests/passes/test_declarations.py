"""What happens to a compile in which a pass finds nothing to do: an error, a warning, or nothing.

Recipes rely on it: docs/recipes.md.
"""

from __future__ import annotations

from optc.ir.pipeline import registry
from optc.ir.pipeline.phase import Effect
from optc.passes.quantize.calibrate import Calibrate
from tests.support.dense_models import dense_model

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
    "halve-weights",
    "kv-cache",
    "kv-slots",
    "medusa-heads",
    "pack-rows",
    "propagate-errors",
    "prune-depth",
    "prune-heads",
    "prune-to-budget",
    "prune-weights",
    "prune-width",
    "quantize-blocks",
    "quantize-convolutions",
    "quantize-products",
    "quantize-static",
    "quantize-weights",
    "rotate",
    "smooth",
    "trained-weights",
    "vocab-trim",
}
#: A model of another build may have nothing for them; the user is told the nearest miss.
EXPECTED = {
    *("fuse-gate-up", "fuse-layer-norm", "fuse-norm-quantize", "fuse-qkv", "fuse-residual-norm"),
    "fuse-rotary",
}


def test_which_passes_must_find_something() -> None:
    passes = registry.passes()
    assert {name for name, one in passes.items() if one.required} == REQUIRED
    assert {name for name, one in passes.items() if one.expected} == EXPECTED


def test_passes_that_move_weights_say_so() -> None:
    """Checkpoints that are exported have other names and rows in their entries."""
    moving = {name for name, one in registry.passes().items() if one.has(Effect.MOVES_WEIGHTS)}
    of_layers = {"fuse-gate-up", "fuse-qkv", "latent-kv", "pack-rows"}
    assert moving == {"canonicalize", "cover-tables", *of_layers}


def test_passes_that_read_a_text_say_how_much() -> None:
    model = dense_model(1)
    counts = {name: one().costs(model).text_tokens for name, one in registry.passes().items()}
    reading = {name for name, one in registry.passes().items() if one.has(Effect.READS_TEXT)}
    assert {name for name, count in counts.items() if count} == reading
    assert Calibrate(windows=3, window_tokens=100).costs(model).text_tokens == 300
