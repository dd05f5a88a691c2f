"""The shipped model with its Medusa heads through compile and generation; nothing is stubbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.importer.additions.heads import digest_heads

ROOT = Path(__file__).parents[2]
MODEL, HEADS = ROOT / "examples/models/pycode", ROOT / "examples/models/pycode-medusa"
PROMPTS = ["def fib(n):", "import os\n", "class Stack:\n    def push(self, item):"]
PARAMS = {
    "greedy": optc.SamplingParams(temperature=0, max_tokens=48, ignore_eos=True),
    "seeded": optc.SamplingParams(temperature=0.8, seed=7, max_tokens=48, ignore_eos=True),
}


@pytest.fixture
def artifact(drafting_artifact: Callable[[str], Path]) -> Path:
    return drafting_artifact("int8")


def generate(path: Path, **options: object) -> Iterator[tuple[list[tuple[int, ...]], int, int]]:
    """Tokens of each prompt, drafts and accepted drafts so far, for each way to draw."""
    with optc.load(path, kv_memory="16MiB", **options) as engine:  # type: ignore[arg-type]
        for params in PARAMS.values():
            results = engine.generate(PROMPTS, params)
            metrics = engine.metrics()
            tokens = [result.token_ids for result in results]
            yield tokens, metrics.drafted_tokens, metrics.accepted_tokens


def test_medusa_drafts_and_the_text_is_that_of_plain_decoding(artifact: Path) -> None:
    plain = list(generate(artifact))
    drafted = list(generate(artifact, speculate="medusa", num_speculative_tokens=4))
    assert [tokens for tokens, _, _ in drafted] == [tokens for tokens, _, _ in plain]
    assert [count for _, count, _ in plain] == [0, 0]
    assert 0 < drafted[0][1] < drafted[1][1], "both ways to draw draft"
    assert drafted[-1][2] > 0, "some drafts are right"


def test_the_manifest_knows_the_heads_and_not_where_they_lay(artifact: Path) -> None:
    manifest = Artifact.open(artifact).manifest
    assert f"medusa-heads{{sha256={digest_heads(HEADS)}}}" in manifest.pipeline
    assert str(HEADS) not in (artifact / "manifest.json").read_text()
