"""Passes of the group `prune`."""

from __future__ import annotations

from optc.passes.prune.vocabulary.vocab_trim import VocabTrim
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.pipeline.base import Pass

PASSES: tuple[type[Pass], ...] = (VocabTrim, PruneWeights)
