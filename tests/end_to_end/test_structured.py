"""Structured output of the trained example on its real engine: always valid, always the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import optc
from optc import Engine, RequestOutput, SamplingParams

MODEL = Path(__file__).parents[2] / "examples/models/pycode"
PROMPT = '# A record as JSON, for example {"name": "json", "age": 3}\nrecord = '
#: Bounded everywhere, as the other structures but the grammar are, so that no text is cut.
SCHEMA: dict[str, Any] = {
    "$defs": {"tag": {"type": "string", "maxLength": 8}},
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-zé日🙂 ]{1,12}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "score": {"type": ["number", "null"], "minimum": -1, "maximum": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3},
        "kind": {"enum": ["alpha", "beta", "gamma_ray"]},
        "inner": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "when": {"type": "string", "format": "date"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "tags", "kind", "inner"],
    "additionalProperties": False,
}
CASES: dict[str, dict[str, Any]] = {
    "schema": {"json_schema": SCHEMA},
    "spaced": {"json_schema": {**SCHEMA, "x-guidance": {"whitespace_pattern": "[ \n]?"}}},
    "regex": {"regex": r"(?:[a-z]{1,8}|日本|é|🙂){3,5} = [0-9]{1,3}(?:\.[0-9]{1,4})?;"},
    "choice": {"choice": ["yes", "yes, but", "no", "naïve 🙂🙃", "日本"]},
    "grammar": {"grammar": 'start: "f(" arg ("," arg){0,3} ")"\narg: /[a-z]{1,6}/ | start'},
}


def check(case: str, text: str) -> None:
    if case in ("schema", "spaced"):
        jsonschema.validate(
            json.loads(text), SCHEMA, format_checker=jsonschema.FormatChecker(["date"])
        )
    elif case == "grammar":
        assert re.fullmatch(r"[a-z(),]+", text)
        assert text.count("(") == text.count(")")
        assert compile(text, "text", "eval")
    elif case == "regex":
        assert re.fullmatch(CASES["regex"]["regex"], text)
    else:
        assert text in CASES["choice"]["choice"]


@pytest.fixture(scope="module")
def artifact(drafting_artifact: Callable[[str], Path]) -> Path:
    return drafting_artifact("int8")


@pytest.fixture(scope="module")
def engine(artifact: Path) -> Iterator[Engine]:
    with optc.load(artifact) as opened:
        yield opened


def params_of(case: str, seed: int) -> SamplingParams:
    return SamplingParams(max_tokens=400, temperature=1.0, seed=seed, **CASES[case])


def outputs_of(engine: Engine, seeds: int) -> dict[tuple[str, int], RequestOutput]:
    """All cases with all seeds, in one batch."""
    keys = [(case, seed) for seed in range(seeds) for case in CASES]
    params = [params_of(case, seed) for case, seed in keys]
    return dict(zip(keys, engine.generate([PROMPT] * len(keys), params), strict=True))


@pytest.fixture(scope="module")
def sampled(engine: Engine) -> dict[tuple[str, int], RequestOutput]:
    return outputs_of(engine, 40)


@pytest.mark.parametrize("case", CASES)
def test_every_sampled_text_has_its_structure(
    sampled: dict[tuple[str, int], RequestOutput], case: str
) -> None:
    texts = set()
    for (of, seed), output in sampled.items():
        if of == case:
            output.raise_for_error()
            if output.finish_reason == "stop":
                check(case, output.text)
            else:  # only the nesting of the grammar knows no bound
                assert (case, output.output_tokens) == ("grammar", 400), seed
            texts.add(output.text)
    assert len(texts) > 2, "the seeds differ"


@pytest.mark.parametrize(
    "options",
    [
        # whether drafts pay is another matter, and depends on the machine's speed
        {"speculate": "ngram", "num_speculative_tokens": 3},
        {"speculate": "lookahead", "num_speculative_tokens": 3},
        {"token_budget": 5},
        {"prefix_cache": False, "threads": 1},
    ],
)
def test_the_text_does_not_depend_on_how_it_is_computed(
    artifact: Path, sampled: dict[tuple[str, int], RequestOutput], options: dict[str, Any]
) -> None:
    with optc.load(artifact, verify="size", **options) as other:
        for key, output in outputs_of(other, 5).items():
            assert output.token_ids == sampled[key].token_ids
        if "speculate" in options:
            assert other.metrics().accepted_tokens > 0


def test_alone_it_is_the_same(
    engine: Engine, sampled: dict[tuple[str, int], RequestOutput]
) -> None:
    for case in CASES:
        alone = engine.submit(PROMPT, params_of(case, 2)).result()
        assert alone.token_ids == sampled[case, 2].token_ids


def test_completions_of_one_prompt(
    engine: Engine, sampled: dict[tuple[str, int], RequestOutput]
) -> None:
    params = SamplingParams(max_tokens=400, seed=3, n=4, **CASES["schema"])
    (output,) = engine.generate([PROMPT], params)
    assert output.completions[0].token_ids == sampled["schema", 3].token_ids
    for completion in output.completions:
        check("schema", completion.text)


def test_what_is_forced_takes_no_steps(engine: Engine) -> None:
    before = engine.metrics()
    (output,) = engine.generate([PROMPT], params_of("schema", 5))
    steps = engine.metrics().steps - before.steps
    forced = output.metrics.forced_tokens
    assert forced > 15
    assert steps <= output.output_tokens - forced + 1


def test_drawn_one_by_one_it_is_the_same(
    engine: Engine, sampled: dict[tuple[str, int], RequestOutput]
) -> None:
    """With log-probabilities nothing is skipped."""
    params = SamplingParams(max_tokens=400, seed=7, logprobs=0, **CASES["schema"])
    (output,) = engine.generate([PROMPT], params)
    assert output.metrics.forced_tokens == 0
    assert output.token_ids == sampled["schema", 7].token_ids
    assert output.logprobs is not None
    assert len(output.logprobs) == output.output_tokens
