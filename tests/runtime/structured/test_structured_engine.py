"""Structured output through the engine: texts, stop strings, errors of one request alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from optc.errors import RequestError, UnavailableError
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from tests.runtime.structured.cores import BYTES, EOS, spec_of
from tests.runtime.support.toy import ToyExecutable


@pytest.fixture
def engine() -> Iterator[Engine]:
    spec = spec_of((0, 5))
    with Engine(lambda: ToyExecutable(spec), tokenizer=BYTES, eos_token_ids=[EOS]) as opened:
        yield opened


def test_forced_text_arrives_with_the_token_before_it(engine: Engine) -> None:
    handle = engine.submit("ab", SamplingParams(max_tokens=30, choice=["naïve 🙂 text"]))
    deltas = [delta for delta in handle if delta.text]
    assert [delta.text for delta in deltas] == ["naïve 🙂 text"]
    assert handle.result().finish_reason == "stop"


def test_a_stop_string_in_forced_text_ends_it_there(engine: Engine) -> None:
    params = SamplingParams(max_tokens=30, choice=["yes, please"], stop=[", p"])
    (output,) = engine.generate(["ab"], params)
    assert (output.text, output.finish_reason) == ("yes", "stop")
    assert output.output_tokens == len("yes, p")


def test_completions_each_have_the_structure(engine: Engine) -> None:
    params = SamplingParams(max_tokens=30, n=3, seed=1, temperature=2.0, regex="[a-z]{2}é")
    (output,) = engine.generate(["ab"], params)
    assert [len(completion.text) for completion in output.completions] == [3, 3, 3]
    assert {completion.text[2] for completion in output.completions} == {"é"}


def test_a_wrong_structure_does_not_hold_up_other_prompts(engine: Engine) -> None:
    params = [SamplingParams(regex="a("), SamplingParams(choice=["fine"])]
    wrong, right = engine.generate(["ab", "ab"], params, on_error="return")
    assert str(wrong.error) == "regex, character 1: unclosed group"
    assert right.text == "fine"


def test_it_needs_a_tokenizer() -> None:
    spec = spec_of((0,))
    with (
        Engine(lambda: ToyExecutable(spec)) as engine,
        pytest.raises(RequestError, match="choice: structured output needs a tokenizer"),
    ):
        engine.submit([5, 6], SamplingParams(choice=["a"]))


def test_it_needs_llguidance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UnavailableError, match="pip install"):
        engine.submit("ab", SamplingParams(choice=["a"]))
    assert engine.submit("ab", SamplingParams(max_tokens=1)).result().output_tokens == 1


def test_grammars_are_compiled_by_the_thread_that_submits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_one = GrammarCompiler._compile
    threads: list[int] = []

    def noted(self: GrammarCompiler, structure: Structure) -> object:
        threads.append(threading.get_ident())
        return compile_one(self, structure)

    monkeypatch.setattr(GrammarCompiler, "_compile", noted)
    engine.submit("ab", SamplingParams(choice=["a"])).result()
    assert threads == [threading.get_ident()]
