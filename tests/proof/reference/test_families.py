"""Reference and baseline on imported models: caps, windows, two rotary bases, norms around."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.importer.import_model import import_model
from optc.passes.canonicalize.canonicalize import Canonicalize
from optc.proof.reference.baseline import Baseline
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.partition import mixes_tokens, partition
from tests.importer.decoders import build, config_of, error, reference, save, tokens
from tests.importer.test_families import FAMILIES
from tests.proof.gates.test_speed import cached_logits
from tests.proof.reference.test_blockwise import blockwise_logits

TOLERANCE = 2e-5


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "phi3"])
def test_both_agree_with_transformers(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    layers = max(2, family.options.get("num_hidden_layers", 2))
    model = build(config_of(family.kind, **{**family.options, "num_hidden_layers": layers}))
    dense = import_model(save(model, tmp_path / name)).model
    Canonicalize().run(dense)
    blocks = partition(dense).blocks
    assert [sum(map(mixes_tokens, block.nodes)) for block in blocks] == [1] * layers
    ids = tokens().astype(np.int32)
    expected = reference(model, ids.astype(np.int64))
    assert error(blockwise_logits(BlockwiseReference(dense, 1), ids), expected) < TOLERANCE
    (logits,) = cached_logits(Baseline(dense, 1, whole=True), ids[0, :14])
    assert error(logits, expected[0, [8, 9, 13]]) < TOLERANCE
