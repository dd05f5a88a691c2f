"""The shipped model with its trained draft through compile and generation; nothing is stubbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact

MODELS = Path(__file__).parents[2] / "examples/models"
PROMPTS = [
    "def fib(n):",
    "import os\nimport sys\n\n\ndef main():\n    ",
    "class Stack:\n    def push(self, item):",
]
PARAMS = [
    optc.SamplingParams(temperature=0, max_tokens=48, ignore_eos=True),
    optc.SamplingParams(temperature=0.8, seed=7, max_tokens=48, ignore_eos=True),
]


@pytest.fixture
def artifact(drafting_artifact: Callable[[str], Path]) -> Path:
    return drafting_artifact("int8")


def generate(path: Path, **options: object) -> tuple[list[list[tuple[int, ...]]], int, int]:
    """Tokens of each prompt for each way to draw, drafts, and accepted drafts."""
    with optc.load(path, kv_memory="16MiB", cost_cache=False, **options) as engine:  # type: ignore[arg-type]
        tokens = [
            [result.token_ids for result in engine.generate(PROMPTS, params)] for params in PARAMS
        ]
        metrics = engine.metrics()
    return tokens, metrics.drafted_tokens, metrics.accepted_tokens


def test_a_trained_draft_is_often_right_and_changes_no_token(artifact: Path) -> None:
    plain, none, _ = generate(artifact)
    tokens, drafted, accepted = generate(artifact, speculate="draft", num_speculative_tokens=3)
    assert tokens == plain
    assert none == 0
    # three in a row; by chance none of 4096 tokens would be right
    assert accepted > 0.2 * drafted > 0


@pytest.mark.parametrize("speculate", ["draft", "ngram+draft"])
def test_as_many_drafts_as_pay_change_no_token(artifact: Path, speculate: str) -> None:
    assert generate(artifact, speculate=speculate)[0] == generate(artifact)[0]


def test_the_first_layers_draft_on_the_targets_keys_and_values(artifact: Path) -> None:
    engines = {one.role: one.spec for one in Artifact.open(artifact).manifest.engines}
    assert engines["self"].shared_kv == (0, 1, 2)
    assert engines["draft"].shared_kv == engines["eagle"].shared_kv == ()
    tokens, drafted, _ = generate(artifact, speculate="self", num_speculative_tokens=2)
    assert drafted
    assert tokens == generate(artifact)[0]
