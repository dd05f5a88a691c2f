"""The shipped model with its layer that drafts by hidden states; nothing is stubbed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.importer.additions.eagle import digest_eagle

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "examples/models/pycode-eagle"
#: Of modules that no training step saw.
TEXT = ROOT / "examples/text/code_heldout.jsonl"


@pytest.fixture
def artifact(drafting_artifact: Callable[[str], Path]) -> Path:
    return drafting_artifact("int8")


def prompts() -> list[str]:
    texts = [json.loads(line)["text"] for line in TEXT.read_text().splitlines()[:6]]
    return [text[400:700] for text in texts]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_most_first_drafts_hold_and_the_text_is_that_of_plain_decoding(
    artifact: Path, temperature: float
) -> None:
    params = optc.SamplingParams(
        temperature=temperature, seed=7, max_tokens=40, ignore_eos=True, n=2
    )
    found, counts = [], {}
    for kind in ("off", "medusa", "eagle", "ngram+eagle"):
        drafts = None if kind == "off" else 2
        with optc.load(
            artifact, kv_memory="32MiB", speculate=kind, num_speculative_tokens=drafts
        ) as engine:
            outputs = engine.generate(prompts(), params)
            found.append([[c.token_ids for c in output.completions] for output in outputs])
            metrics = engine.metrics()
            counts[kind] = (metrics.accepted_tokens, metrics.drafted_tokens)
    assert all(texts == found[0] for texts in found[1:])
    accepted, drafted = counts["eagle"]
    assert accepted > 0.2 * drafted, counts
    assert accepted > 1.5 * counts["medusa"][0], counts


def test_the_manifest_knows_the_layer_and_its_weights_once(artifact: Path) -> None:
    opened = Artifact.open(artifact)
    (layer,) = (one for one in opened.manifest.engines if one.role == "eagle")
    assert layer.source is not None
    assert layer.source.digest == digest_eagle(LAYER)
    sizes = {entry.path: entry.bytes for entry in opened.manifest.files}
    own, whole = (sizes[f"engines/{name}/weights.bin"] for name in ("eagle", "target"))
    assert own < 1.2e6, "one layer in 4 bits, without embedding and head"
    assert own < 0.1 * whole
