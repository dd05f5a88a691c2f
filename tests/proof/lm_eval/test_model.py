"""The model of lm-eval against lm-eval's own of transformers, on the trained example."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from optc.errors import InputError, OptcError

pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")

from lm_eval.models.huggingface import HFLM

from optc.proof.lm_eval.model import OptcLM
from tests.proof.lm_eval.conftest import MODEL, ROOT

TASKS = ROOT / "examples/tasks"
#: Of both models, so that long texts are cut alike.
LENGTH = 200


class Asked(NamedTuple):
    """The token ids that models read of lm-eval's requests."""

    args: tuple[Any, ...]


@pytest.fixture(scope="module")
def transformers_model() -> Any:
    return HFLM(
        pretrained=str(MODEL), dtype="float32", device="cpu", batch_size=4, max_length=LENGTH
    )


@pytest.fixture(scope="module")
def exact(exact_artifact: Path) -> Iterator[OptcLM]:
    model = OptcLM(str(exact_artifact), max_length=LENGTH, batch_size=1, device="cpu")
    with model.engine:
        yield model


def rows(name: str) -> list[dict[str, Any]]:
    with (TASKS / name).open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def pairs() -> list[Asked]:
    found = [
        Asked((row["context"], choice))
        for row in rows("code_choices.jsonl")[:8]
        for choice in row["choices"]
    ]
    row = rows("code_choices.jsonl")[8]
    long = 8 * row["context"]
    texts = ("", row["context"] + "  ", long, "<|end_of_text|>", "<|begin_of_text|>x = ")
    return found + [Asked((text, row["choices"][0])) for text in texts]


def test_pairs_have_the_same_tokens_and_the_same_scores(
    exact: OptcLM, transformers_model: Any
) -> None:
    for context, continuation in (one.args for one in pairs() if one.args[0]):
        same = exact._encode_pair(context, continuation)
        assert same == transformers_model._encode_pair(context, continuation)
    want = transformers_model.loglikelihood(pairs(), disable_tqdm=True)
    got = exact.loglikelihood(pairs())
    assert [greedy for _, greedy in got] == [greedy for _, greedy in want]
    assert [p for p, _ in got] == pytest.approx([p for p, _ in want], abs=5e-3)


def test_quantized_scores_are_near(
    drafting_artifact: Callable[[str], Path], transformers_model: Any
) -> None:
    model = OptcLM(str(drafting_artifact("int8")), max_length=LENGTH)
    with model.engine:
        got = model.loglikelihood(pairs())
    want = transformers_model.loglikelihood(pairs(), disable_tqdm=True)
    count = [len(model._encode_pair(*one.args)[1]) if one.args[0] else 8 for one in pairs()]
    off = [abs(a - b) / n for (a, _), (b, _), n in zip(got, want, count, strict=True)]
    assert max(off) < 0.3, "nats a token, of int8 weights, activations and KV"
    assert sum(off) / len(off) < 0.03


def test_long_texts_are_scored_in_the_same_windows(exact: OptcLM, transformers_model: Any) -> None:
    texts = [Asked((6 * rows("code_choices.jsonl")[0]["context"],)), Asked(("x = 1\n",))]
    assert len(exact.tok_encode(texts[0].args[0])) > 2 * LENGTH
    want = transformers_model.loglikelihood_rolling(texts, disable_tqdm=True)
    assert exact.loglikelihood_rolling(texts) == pytest.approx(want, abs=2e-2)


def test_continuations_end_at_the_same_stop_strings(exact: OptcLM, transformers_model: Any) -> None:
    options = {"until": ["\n", ")"], "max_gen_toks": 12, "do_sample": False}
    contexts = [row["context"] for row in rows("code_lines.jsonl")[:6]]
    asked = [Asked((text, options)) for text in contexts]
    asked += [Asked((20 * contexts[0], {"until": [], "max_gen_toks": 5}))]
    want = transformers_model.generate_until(asked, disable_tqdm=True)
    assert exact.generate_until(asked) == want
    assert len(set(want)) > 3


def test_samples_are_drawn_again_and_differ_from_each_other(exact: OptcLM) -> None:
    options = {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 1.5}
    asked = [Asked(("def ", options))] * 4
    first = exact.generate_until(asked)
    assert exact.generate_until(asked) == first
    assert len(set(first)) > 1


def test_contexts_behind_bos_or_without(exact: OptcLM, transformers_model: Any) -> None:
    bos = exact.prefix_token_id
    assert bos == transformers_model.prefix_token_id
    assert exact.eot_token_id == transformers_model.eot_token_id
    for text in ("x", "<|begin_of_text|>x", ""):
        for add in (None, False, True):
            want = transformers_model.tok_encode(text, add_special_tokens=add)
            assert exact.tok_encode(text, add_special_tokens=add) == want, (text, add)
    assert len(exact.tokenizer_name) == len("optc-") + 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 5000}, "max_length: a length of 5000 tokens (2 to 511)"),
        ({"max_lenght": 5}, "model_args: 'max_lenght' is no argument of the model optc (did you"),
        ({"engine": "none"}, "none"),
    ],
)
def test_arguments_that_are_wrong_are_said(
    exact_artifact: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptcError) as error:
        OptcLM(str(exact_artifact), **options)
    assert message in str(error.value)


def test_what_does_not_fit_is_said(exact: OptcLM) -> None:
    with pytest.raises(InputError, match=r"a continuation of 300 tokens \(1 to 200"):
        exact._loglikelihood_tokens([(None, [3], [4] * 300)])
    with pytest.raises(InputError, match="max_gen_toks: 200 new tokens"):
        exact.generate_until([Asked(("x", {"max_gen_toks": 200}))])
