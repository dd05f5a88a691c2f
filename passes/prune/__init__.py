"""Passes of the group `prune`."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.prune.structured.prune_depth import PruneDepth
from optc.passes.prune.structured.prune_heads import PruneHeads
from optc.passes.prune.structured.prune_width import PruneWidth
from optc.passes.prune.to_budget.prune_to_budget import PruneToBudget
from optc.passes.prune.vocabulary.vocab_trim import VocabTrim
from optc.passes.prune.weights.prune_weights import PruneWeights

PASSES: tuple[type[Pass], ...] = (
    VocabTrim,
    PruneDepth,
    PruneHeads,
    PruneWidth,
    PruneToBudget,
    PruneWeights,
)
