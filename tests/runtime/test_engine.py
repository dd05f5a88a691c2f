"""The engine: results in order, streams, seeds, errors of one request."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import RequestError, RequestTypeError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.outputs import Delta
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import VOCAB, ToyExecutable, generate_naively, toy_spec

GREEDY = SamplingParams(temperature=0, max_tokens=6)


def text_engine() -> tuple[Engine, ToyExecutable]:
    executable = ToyExecutable(toy_spec((0,), vocab=259, max_context=128))
    tokenizer = Tokenizer(byte_level(bos=True))
    return Engine(lambda: executable, tokenizer=tokenizer, eos_token_ids=[1]), executable


def test_generate_gives_results_in_order_and_every_prompt_its_own() -> None:
    executable = ToyExecutable(toy_spec((0, 6)))
    prompts = [[i] * (1 + 7 * (i % 3)) for i in range(12)]
    with Engine(lambda: executable) as engine:
        results = engine.generate(prompts, GREEDY)
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == generate_naively(executable.model, prompt, 6)
        assert result.prompt_token_ids == tuple(prompt)
        assert (result.prompt_tokens, result.output_tokens) == (len(prompt), 6)
        assert result.finish_reason == "length"
    assert len(executable.batches) < 30, "requests shared their steps"


def test_invalid_prompts_get_their_error_and_the_others_go_on() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        prompts = [[], [1, 2], [VOCAB], [3] * 64, "text"]
        results = engine.generate(prompts, GREEDY, on_error="return")
        assert [str(r.error) if r.error else None for r in results] == [
            "prompt: the prompt is empty (give some tokens)",
            None,
            f"prompt: unknown token ids [{VOCAB}] (they go from 0 to {VOCAB - 1})",
            "prompt: the prompt has 64 tokens; the context holds 64, prompt and output together "
            "(shorten it)",
            "prompt: there is no tokenizer (give token ids)",
        ]
        assert [r.finish_reason for r in results] == ["error", "length", *["error"] * 3]
        assert results[1].raise_for_error() is results[1]
        with pytest.raises(RequestError, match="the prompt is empty"):
            results[0].raise_for_error()
        with pytest.raises(RequestError, match="the prompt is empty"):
            engine.submit([])


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([1.5], GREEDY, "prompt: a prompt is a text or a list of token ids, not [1.5]"),
        (None, GREEDY, "prompt: a prompt is a text or a list of token ids, not None"),
        (b"text", GREEDY, "prompt: a prompt is a text or a list of token ids, not b'text'"),
        ([1, 2**63], GREEDY, "prompt: a prompt is a text or a list of token ids, not [1, 9223"),
        (np.array(3), GREEDY, "prompt: a prompt is a text or a list of token ids, not array(3)"),
        (np.array([[1]]), GREEDY, "prompt: a prompt is a text or a list of token ids, not array"),
        (["1"] * 2, GREEDY, "prompt: a prompt is a text or a list of token ids, not ['1', '1']"),
        (range(10**9), GREEDY, "prompt: the prompt has 1000000000 tokens; the context holds"),
        ({1: 2}, GREEDY, "prompt: a prompt is a text or a list of token ids, not {1: 2}"),
        ([1], {"n": 2}, "params: sampling parameters are an optc.SamplingParams, not {'n': 2}"),
        ([1], SamplingParams(stop="x"), "stop strings need a tokenizer (use stop_token_ids)"),
        ([1], SamplingParams(stop_token_ids=[-1]), "stop_token_ids: unknown token ids [-1]"),
        ([1], SamplingParams(logit_bias={99: 1}), "logit_bias: unknown token ids [99]"),
    ],
)
def test_invalid_submissions_raise(prompt: object, params: SamplingParams, message: str) -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with pytest.raises(RequestError) as caught:
            engine.submit(prompt, params)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)


def test_prompts_that_are_no_list_of_prompts() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with pytest.raises(TypeError, match="prompts are a text or a list, not 5"):
            engine.generate(5)  # type: ignore[arg-type]
        with pytest.raises(RequestTypeError) as caught:
            engine.generate([5, 6], on_error="return")  # type: ignore[list-item]
        assert str(caught.value) == (
            "prompts[0]: a prompt is a text or a list of token ids, not 5 "
            "(several prompts are a list of those)"
        )


def test_params_for_each_prompt() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        lengths = [SamplingParams(max_tokens=n) for n in (1, 3)]
        assert [r.output_tokens for r in engine.generate([[1], [2]], lengths)] == [1, 3]
        assert engine.generate([]) == []
        with pytest.raises(RequestError, match="2 sampling parameters for 1 prompts"):
            engine.generate([[1]], lengths)


def test_streams_add_up_to_the_result() -> None:
    engine, _ = text_engine()
    with engine:
        params = SamplingParams(max_tokens=40, seed=5, n=3, logprobs=1)
        handle = engine.submit("hello", params)
        deltas = list(handle)
        result = handle.result()
    assert handle.done
    assert list(handle) == []
    assert len(result.completions) == 3
    for index, completion in enumerate(result.completions):
        mine: list[Delta] = [delta for delta in deltas if delta.index == index]
        assert completion.index == index
        assert "".join(delta.text for delta in mine) == completion.text
        assert tuple(t for delta in mine for t in delta.token_ids) == completion.token_ids
        assert tuple(p for delta in mine for p in delta.logprobs) == completion.logprobs
        assert [d.finish_reason for d in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1].finish_reason == completion.finish_reason
    assert len({completion.token_ids for completion in result.completions}) == 3


def test_seeds_repeat_and_their_absence_does_not() -> None:
    engine, _ = text_engine()
    with engine:
        seeded = SamplingParams(max_tokens=20, seed=11)
        first, second, other = engine.generate(
            ["abc"] * 3, [seeded, seeded, SamplingParams(max_tokens=20)]
        )
    assert first.token_ids == second.token_ids != other.token_ids


def test_texts_get_their_bos_token_and_end_at_eos_and_stop_strings() -> None:
    engine, executable = text_engine()
    prompt = [0, *(byte + 3 for byte in range(3))]
    whole = generate_naively(executable.model, prompt, 12)
    with engine:
        text = engine.tokenizer.decode(prompt)  # type: ignore[union-attr]
        plain = engine.generate(text, SamplingParams(temperature=0, max_tokens=12))[0]
        assert list(plain.prompt_token_ids) == prompt
        assert list(plain.token_ids) == whole
        cut = plain.text[3:5]
        stopped = engine.generate(text, SamplingParams(temperature=0, max_tokens=12, stop=cut))[0]
        ended = engine.generate(
            text, SamplingParams(temperature=0, max_tokens=12, logit_bias={1: 1e9})
        )[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == plain.text[: plain.text.index(cut)]
    assert (ended.finish_reason, ended.token_ids, ended.text) == ("stop", (1,), "")


def test_texts_that_cannot_fit_are_refused_before_they_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = Tokenizer(byte_level())
    spec = toy_spec(vocab=259, max_context=32)
    with Engine(lambda: ToyExecutable(spec), tokenizer=tokenizer) as engine:
        with pytest.raises(RequestError, match="the prompt has 65536 tokens; the context holds 32"):
            engine.submit("x" * 65536)
        monkeypatch.setattr(tokenizer, "encode", None)
        with pytest.raises(RequestError) as caught:
            engine.submit("x" * 65537)
    assert str(caught.value) == (
        "prompt: the prompt has 65537 characters; the context holds 32 tokens, which are 65536 "
        "characters at most (shorten it)"
    )


def test_a_lone_surrogate_is_refused() -> None:
    engine, _ = text_engine()
    with engine:
        result = engine.generate(["\ud800", "fine"], on_error="return")
    assert str(result[0].error) == "prompt: not valid Unicode: surrogates not allowed"
    assert result[1].error is None


def test_an_interrupted_generate_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: Handle) -> None:
        raise KeyboardInterrupt

    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Handle, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.generate([[1], [2]], SamplingParams(max_tokens=None, ignore_eos=True))
        assert engine.submit([3], GREEDY).result().finish_reason == "length"
        finished = engine.metrics().finished
    assert finished.get("cancelled", 0) + finished["length"] == 3


def test_limits_follow_the_memory() -> None:
    spec = toy_spec(max_context=64)
    per_block = 4 * spec.kv_bytes_per_token
    executable = ToyExecutable(spec)
    with Engine(lambda: executable, ServeSettings(kv_memory=5 * per_block, block_size=4)) as engine:
        assert engine.max_context == 20
        assert engine.spec is spec
        params = SamplingParams(max_tokens=None)
        result = engine.generate([[1] * 10, [1] * 20], params, on_error="return")
        assert result[0].output_tokens == 10
        assert result[0].finish_reason == "length"
        assert "the context holds 20" in str(result[1].error)


def test_numpy_prompts_are_prompts() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        prompt = np.array([1, 2, 3], np.int64)
        result = engine.generate([prompt], GREEDY)[0]  # type: ignore[list-item]
    assert list(result.token_ids) == generate_naively(executable.model, [1, 2, 3], 6)


def test_an_invalid_request_raises_before_anything_begins() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        with pytest.raises(RequestError) as caught:
            engine.generate([[1], [VOCAB]], GREEDY)
        assert str(caught.value).startswith(f"prompts[1]: unknown token ids [{VOCAB}]")
        with pytest.raises(RequestError, match=r"prompts\[1\], stop_token_ids: unknown"):
            engine.generate([[1], [2]], [GREEDY, SamplingParams(stop_token_ids=[99])])
        with pytest.raises(RequestError) as caught:
            engine.generate([[]])
        assert str(caught.value).startswith("prompt: the prompt is empty"), "there is but one"
        with pytest.raises(RequestError, match="on_error: 'ignore' is not known"):
            engine.generate([[1]], on_error="ignore")  # type: ignore[arg-type]
        assert not executable.batches


@pytest.mark.parametrize("on_error", ["raise", "return"])
@pytest.mark.parametrize("prompt", [None, b"abc", [None], 3])
def test_prompts_of_a_wrong_type_are_errors_of_the_program(prompt: object, on_error: str) -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine, pytest.raises(RequestTypeError):
        engine.generate([[1], prompt], GREEDY, on_error=on_error)  # type: ignore[list-item, arg-type]


@pytest.mark.parametrize("params", [{"max_tokens": 3}, [{}], "x", 5])
def test_params_of_a_wrong_type_are_errors_of_the_program(params: object) -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        for call in (engine.generate, engine.submit):
            with pytest.raises(RequestTypeError, match="sampling parameters are an") as caught:
                call(
                    [[1]] if call == engine.generate else [1],
                    params,
                )  # type: ignore[operator]
            assert isinstance(caught.value, TypeError)


def test_what_fails_while_it_runs_is_a_result() -> None:
    """No token is allowed after the first: only the engine finds that out."""
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        nothing = SamplingParams(logit_bias=dict.fromkeys(range(VOCAB), -np.inf))
        wrong, right = engine.generate([[1], [2]], [nothing, GREEDY])
    assert (wrong.finish_reason, right.finish_reason) == ("error", "length")
    with pytest.raises(RequestError, match="output token 0"):
        wrong.raise_for_error()


def test_control_tokens_of_prompts_are_text_unless_asked_for() -> None:
    engine, _ = text_engine()
    with engine:
        plain, parsed = (
            engine.generate("a</s>", GREEDY, parse_special=parse)[0].prompt_token_ids
            for parse in (False, True)
        )
        handle = engine.submit("a</s>", GREEDY, parse_special=True)
    assert (plain[0], plain.count(1), len(plain)) == (0, 0, 6)
    assert parsed == handle.prompt_token_ids
    assert (parsed[0], parsed[-1], len(parsed)) == (0, 1, 3)
