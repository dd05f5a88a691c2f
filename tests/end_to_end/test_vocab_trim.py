"""A vocabulary trimmed by its recipe, on a small trained model, through compile and generation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import optc
from optc.artifact import Artifact
from tests.end_to_end.test_main_job import ROOT, TEXT

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
RECIPE = """name: trimmed
backend: tvm
pipeline: [canonicalize, vocab-trim, fuse-qkv, fuse-gate-up, kv-cache, fuse-residual-norm,
  fuse-rotary]
gates: {kl_mean: 1.0e-6, kl_p99: 1.0e-5, top1_agreement: 0.999, prefill_speedup: null}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """In float32, so that the gates hold the engine to the source's own numbers."""
    folder = tmp_path_factory.mktemp("trimmed")
    (folder / "trimmed.yaml").write_text(RECIPE)
    text = folder / "text.jsonl"
    text.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:8]))
    return optc.compile(
        MODEL,
        folder / "trimmed.yaml",
        folder / "a",
        calibration=CALIBRATION,
        eval_text=text,
        backend="onnxruntime",
    )


def test_text_in_and_out_is_text_and_the_source_agrees(artifact: Artifact, tmp_path: Path) -> None:
    """The engine's text is one that the source would continue likewise, token for token."""
    report = artifact.report()
    facts = report["vocabulary"]
    assert facts["kept"] < 0.95 * facts["tokens"]
    assert facts["heldout_respelled"] < 0.03
    assert all(gate["passed"] is not False for gate in report["gates"])
    prompt = "def fib(n):\n    "
    params = optc.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    with optc.load(artifact.path, kv_memory="16MiB") as engine:
        found = engine.generate([prompt], params)[0]
        assert engine.tokenizer is not None
        assert engine.tokenizer.decode(engine.tokenizer.encode(prompt)) == prompt
    kept = json.loads((artifact.path / "tokenizer/kept_ids.json").read_text())
    plain = optc.compile(MODEL, "fp32", tmp_path / "plain", backend="onnxruntime", no_gates=True)
    with optc.load(plain.path, kv_memory="16MiB") as engine:
        whole = engine.generate([prompt], params)[0]
    assert set(whole.token_ids) <= set(kept), "what the source says is of the domain"
    assert [kept[one] for one in found.token_ids] == list(whole.token_ids)
    assert found.text == whole.text


def test_drafts_change_nothing(artifact: Artifact) -> None:
    prompt = "for i in range(10):\n    for i in range("
    params = optc.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    found = []
    for options in ({}, {"speculate": "ngram", "num_speculative_tokens": 3}):
        with optc.load(artifact.path, kv_memory="16MiB", **options) as engine:
            found.append(engine.generate([prompt], params)[0].token_ids)
    assert found[0] == found[1]
