"""From the arguments of `generate` to submissions: one list, one error, nothing kept on failure."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError, RequestTypeError
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat
from optc.runtime.submitting.preparing import listed, params_for, prepare_all
from optc.runtime.submitting.submission import Submission

GREEDY = SamplingParams(temperature=0)


class Refusing:
    """An intake that refuses prompts of one token, and notes what is given back."""

    def __init__(self) -> None:
        self.discarded: list[object] = []

    def submission(self, request: GenerationRequest) -> Submission:
        if request.prompt == [1]:
            raise RequestError("too short", where="prompt", hint="add some")
        if request.prompt == [2]:
            raise RequestError("too cold", where="temperature")
        if request.prompt == [3]:
            raise RequestTypeError("of another type", where="prompt")
        return Submission.__new__(Submission)

    def discard(self, submission: Submission) -> None:
        self.discarded.append(submission)


def requests(*prompts: Any) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, GREEDY) for prompt in prompts]


def test_one_prompt_is_a_list_of_one() -> None:
    chat = Chat([{"role": "user", "content": "hi"}])
    assert listed("a text") == ["a text"]
    assert listed(chat) == [chat]
    assert listed(iter(["a", "b"])) == ["a", "b"]  # type: ignore[arg-type]
    with pytest.raises(RequestTypeError, match="prompts are a text or a list, not 3"):
        listed(3)  # type: ignore[arg-type]


def test_parameters_are_for_all_prompts_or_one_each() -> None:
    other = SamplingParams(seed=1)
    assert params_for(2, None) == [SamplingParams()] * 2
    assert params_for(2, GREEDY) == [GREEDY, GREEDY]
    assert params_for(2, (GREEDY, other)) == [GREEDY, other]
    with pytest.raises(RequestError, match="1 sampling parameters for 2 prompts"):
        params_for(2, [GREEDY])
    for wrong in ("hot", 0.5):
        with pytest.raises(RequestTypeError, match=r"are an optc\.SamplingParams, not"):
            params_for(2, wrong)  # type: ignore[arg-type]


def test_an_error_names_its_prompt_and_what_was_prepared_is_given_back() -> None:
    intake: Any = Refusing()
    with pytest.raises(RequestError) as caught:
        prepare_all(intake, requests([5, 6], [1]), "raise")
    assert str(caught.value) == "prompts[1]: too short (add some)"
    assert len(intake.discarded) == 1
    with pytest.raises(RequestError, match=r"^prompts\[0\], temperature: too cold$"):
        prepare_all(intake, requests([2], [5, 6]), "raise")


def test_the_error_of_a_lone_prompt_has_no_number() -> None:
    intake: Any = Refusing()
    with pytest.raises(RequestError, match=r"^prompt: too short"):
        prepare_all(intake, requests([1]), "raise")


def test_invalid_requests_are_results_where_that_is_wanted() -> None:
    intake: Any = Refusing()
    first, failed, last = prepare_all(intake, requests([5, 6], [1], [7, 8]), "return")
    assert isinstance(first, Submission)
    assert isinstance(last, Submission)
    assert isinstance(failed, RequestOutput)
    (completion,) = failed.completions
    assert (completion.finish_reason, completion.text, completion.token_ids) == ("error", "", ())
    assert isinstance(completion.error, RequestError)
    assert intake.discarded == []


def test_a_wrong_type_always_raises() -> None:
    intake: Any = Refusing()
    with pytest.raises(RequestTypeError, match=r"^prompts\[1\]: of another type$"):
        prepare_all(intake, requests([5, 6], [3]), "return")
    assert len(intake.discarded) == 1


def test_an_unknown_way_is_refused_before_anything_is_prepared() -> None:
    intake: Any = Refusing()
    with pytest.raises(RequestError, match="on_error: 'ignore' is not known"):
        prepare_all(intake, requests([5, 6]), "ignore")  # type: ignore[arg-type]
