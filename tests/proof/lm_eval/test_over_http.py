"""lm-eval's own client of completions scores a server as its model of transformers does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
pytest.importorskip("tenacity", reason="lm-eval's clients need it (pip install 'lm-eval[api]')")
pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

from tests.proof.lm_eval.conftest import MODEL, ROOT
from tests.proof.lm_eval.test_model import LENGTH, pairs
from tests.serve.processes import started

#: Multiple choice, continuations, and how well texts are predicted.
TASKS = ["code_choices", "code_lines", "code_text"]

#: Pairs of questions and choices at the beginning of `pairs`.
CHOICES = 32


@pytest.fixture(scope="module")
def client(exact_artifact: Path) -> Iterator[Any]:
    arguments = ("serve", "--port", "0", "--model-name", "pycode", str(exact_artifact))
    with started("optc", *arguments, reads=True) as server:
        yield LocalCompletionsAPI(
            base_url=f"{server.url}/v1/completions",
            model="pycode",
            tokenizer=str(MODEL),
            tokenizer_backend="huggingface",
            add_bos_token=True,  # as the tokenizer does by itself
            max_length=LENGTH + 1,  # it takes one off, for the token that it asks for
            batch_size=4,
        )


@pytest.fixture(scope="module")
def transformers_model() -> Any:
    return HFLM(
        pretrained=str(MODEL), dtype="float32", device="cpu", batch_size=4, max_length=LENGTH
    )


@pytest.mark.long
def test_scores_are_those_of_transformers(client: Any, transformers_model: Any) -> None:
    asked = pairs()[:CHOICES]  # the client itself reads the others as other tokens
    want = transformers_model.loglikelihood(asked, disable_tqdm=True)
    got = client.loglikelihood(asked, disable_tqdm=True)
    assert [greedy for _, greedy in got] == [greedy for _, greedy in want]
    assert [p for p, _ in got] == pytest.approx([p for p, _ in want], abs=5e-3)


@pytest.mark.long
def test_tasks_have_the_same_figures(client: Any, transformers_model: Any) -> None:
    def figures(model: Any) -> dict[str, float]:
        tasks = TaskManager(include_path=str(ROOT / "examples/tasks"), include_defaults=False)
        found = lm_eval.simple_evaluate(model, tasks=TASKS, limit=8, task_manager=tasks)
        return {
            f"{task} {name}": value
            for task, values in found["results"].items()
            for name, value in values.items()
            if isinstance(value, float)
        }

    want = figures(transformers_model)
    assert {name.partition(" ")[0] for name in want} == set(TASKS)
    assert figures(client) == pytest.approx(want, rel=1e-3)
