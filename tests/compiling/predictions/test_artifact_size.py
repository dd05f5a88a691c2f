"""Bytes of an artifact: what is counted, and what documents and a tokenizer add."""

from __future__ import annotations

from pathlib import Path

from optc.compiling.predictions.artifact_size import artifact_bytes
from optc.proof.roofline.costs import StepCosts
from optc.proof.roofline.estimate import EngineEstimate
from tests.runtime.support.toy import toy_spec


def estimate(tensors: int) -> EngineEstimate:
    costs = StepCosts("int8", {})
    return EngineEstimate(toy_spec(), 0, costs, file_bytes=10**7, code_bytes=10**6, tensors=tensors)


def test_files_code_documents_and_the_tokenizer_add_up(tmp_path: Path) -> None:
    for name, size in (("tokenizer.json", 5000), ("vocab.json", 700), ("config.json", 9)):
        (tmp_path / name).write_bytes(b" " * size)
    files = sorted(tmp_path.iterdir())
    none = artifact_bytes(estimate(0), [])
    assert 0 < none - 11 * 10**6 < 10**5
    assert artifact_bytes(estimate(0), files) == none + 5000
    assert artifact_bytes(estimate(0), [tmp_path / "vocab.json"]) == none + 700
    grown = [artifact_bytes(estimate(count), []) - none for count in (10, 20)]
    assert grown[1] == 2 * grown[0] > 0
