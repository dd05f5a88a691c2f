"""Log-probabilities, and echoed prompts, in the answers to lines of OpenAI's batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import optc as package
from tests.cli.batch.conftest import Answer, lines_of
from tests.cli.batch.test_openai_form import USER, line

COMPLETIONS = "/v1/completions"


def choices_of(answer: Answer, path: Path, body: dict[str, Any], url: str) -> list[dict[str, Any]]:
    assert answer(line(body, url)).code == 0
    (found,) = lines_of(path / "out.jsonl")
    choices: list[dict[str, Any]] = found["response"]["body"]["choices"]
    return choices


@pytest.mark.parametrize("prompt", ["hi there", [40, 41, 42, 43]])
@pytest.mark.parametrize(("max_tokens", "n"), [(0, 1), (3, 1), (3, 2), (0, 2)])
def test_an_echoed_prompt_has_its_log_probabilities(
    answer: Answer, talker: Path, tmp_path: Path, prompt: Any, max_tokens: int, n: int
) -> None:
    body = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": max_tokens, "n": n}
    choices = choices_of(answer, tmp_path, body | {"temperature": 1, "seed": 3}, COMPLETIONS)
    params = package.SamplingParams(
        max_tokens=max_tokens, n=n, seed=3, logprobs=2, prompt_logprobs=2, ignore_eos=True
    )
    with package.load(talker) as engine:
        assert engine.tokenizer is not None
        (output,) = engine.generate([prompt], params)
        decode = engine.tokenizer.decode
        whole = prompt if isinstance(prompt, str) else decode(prompt)
    assert output.prompt_logprobs is not None
    assert len(choices) == n
    for choice, one in zip(choices, output.completions, strict=True):
        assert choice["text"] == whole + one.text
        assert choice["finish_reason"] == "length"
        assert "prompt_logprobs" not in choice
        assert one.logprobs is not None
        entries = [*output.prompt_logprobs, *one.logprobs]
        found = choice["logprobs"]
        assert found["token_logprobs"] == [None if e is None else e.logprob for e in entries]
        assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None)
        ids = [*output.prompt_token_ids, *one.token_ids]
        assert found["tokens"] == [decode([i], skip_special_tokens=False) for i in ids]
        for top, entry in zip(found["top_logprobs"][1:], entries[1:], strict=True):
            assert entry is not None
            want = {decode([i], skip_special_tokens=False): p for i, p in entry.top}
            assert top == want
        ends = [a + len(b) for a, b in zip(found["text_offset"], found["tokens"], strict=True)]
        assert [0, *ends[:-1]] == found["text_offset"]


def test_log_probabilities_of_what_is_written(answer: Answer, talker: Path, tmp_path: Path) -> None:
    (plain,) = choices_of(answer, tmp_path, {"prompt": "hi", "logprobs": 1}, COMPLETIONS)
    (tmp_path / "out.jsonl").unlink()
    body = {"messages": [USER], "logprobs": True, "top_logprobs": 2}
    (turn,) = choices_of(answer, tmp_path, body, "/v1/chat/completions")
    params = package.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=2)
    with package.load(talker) as engine:
        (written,) = engine.generate(["hi"], params)
        said = engine.chat([USER], params)
    assert written.logprobs is not None
    assert plain["logprobs"]["token_logprobs"] == [one.logprob for one in written.logprobs]
    assert [len(top) for top in plain["logprobs"]["top_logprobs"]] == [1] * 4
    assert said.logprobs is not None
    content = turn["logprobs"]["content"]
    assert [one["logprob"] for one in content] == [one.logprob for one in said.logprobs]
    for one in content:
        assert bytes(one["bytes"]).decode() == one["token"]
        assert [set(other) for other in one["top_logprobs"]] == [{"token", "logprob", "bytes"}] * 2


def test_prompts_are_scored_as_by_vllms_server(
    answer: Answer, talker: Path, tmp_path: Path
) -> None:
    body = {"prompt": [40, 41, 42], "prompt_logprobs": 1, "max_tokens": 1}
    (choice,) = choices_of(answer, tmp_path, body, COMPLETIONS)
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert choice["logprobs"] is None
    for token, entry in zip((41, 42), others, strict=True):
        assert str(token) in entry
        assert sorted(one["rank"] for one in entry.values())[0] == 1
        assert len(entry) in (1, 2)


def test_what_is_echoed_without_log_probabilities(answer: Answer, tmp_path: Path) -> None:
    (choice,) = choices_of(answer, tmp_path, {"prompt": "hi", "echo": True}, COMPLETIONS)
    assert choice["text"].startswith("hi")
    assert len(choice["text"]) > 2
    assert choice["logprobs"] is None
    (tmp_path / "out.jsonl").unlink()
    body = {"prompt": ["hi", "ho"], "echo": True, "max_tokens": 0}
    choices = choices_of(answer, tmp_path, body, COMPLETIONS)
    assert [one["text"] for one in choices] == ["hi", "ho"]
