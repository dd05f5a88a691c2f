"""Passes of the group `prune_vocabulary`."""

from __future__ import annotations

from optc.passes.prune.vocabulary.vocab_trim import VocabTrim
from optc.pipeline.base import Pass

PASSES: tuple[type[Pass], ...] = (VocabTrim,)
