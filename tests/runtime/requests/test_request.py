from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.adapters.table import Adapter
from optc.runtime.params import SamplingParams
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from tests.runtime.support.requests import make_request


def test_a_new_request_is_its_prompt() -> None:
    request = make_request([4, 5, 6], max_length=8)
    assert request.tokens.tolist() == request.path.tolist() == [4, 5, 6]
    assert (request.num_prompt, request.num_tokens, request.num_output) == (3, 3, 0)
    assert (request.num_computed, request.num_pending) == (0, 3)
    assert request.output.tolist() == []
    assert request.room == 4, "of 8 tokens one stays for what the model draws itself"


def test_it_decodes_once_all_but_one_token_of_the_prompt_is_computed() -> None:
    request = make_request([4, 5, 6])
    seen = []
    for computed in range(4):
        request.num_computed = computed
        seen.append(request.decodes)
    assert seen == [False, False, True, True]


def test_tokens_and_drafts_follow_each_other() -> None:
    request = make_request([4], max_length=8)
    request.append(5)
    request.draft([6, 7], [-1, -1])
    assert request.tokens.tolist() == [4, 5]
    assert request.path.tolist() == [4, 5, 6, 7]
    assert request.draft_parents == [-1, -1]
    assert request.output.tolist() == [5]
    request.append(9)  # where the first draft was
    request.draft([])
    assert request.path.tolist() == [4, 5, 9]
    assert request.draft_parents is None


def test_another_output_is_computed_anew() -> None:
    request = make_request([4, 5], max_length=8)
    request.append(6)
    request.num_computed = 3
    request.set_output([7, 8, 9])
    assert request.tokens.tolist() == [4, 5, 7, 8, 9]
    assert (request.num_tokens, request.num_computed, request.num_output) == (5, 0, 3)


def test_beams_have_no_room_for_drafts() -> None:
    assert make_request(params=SamplingParams(beam_width=2)).room == 0


def test_no_salt_is_that_of_an_adapter() -> None:
    salts = {
        make_request(salt=salt, adapter=adapter).salt
        for salt in ("", "1", "1\0", "\0")
        for adapter in (None, Adapter("a", 0, 1), Adapter("a", 0, 2))
    }
    assert len(salts) == 12


def test_the_first_of_n_completions_leads_itself() -> None:
    assert make_request(request_id=5).leader_id == 5
    assert make_request(request_id=5, leader_id=0).leader_id == 0


def test_a_prompt_is_copied() -> None:
    prompt = np.array([1, 2], np.int32)
    request = make_request(prompt)  # type: ignore[arg-type]
    prompt[0] = 9
    assert request.tokens.tolist() == [1, 2]


def test_completions_are_of_the_finished() -> None:
    request = make_request([1], SamplingParams(logprobs=0), index=2)
    with pytest.raises(RuntimeError, match="request 0 has not finished"):
        request.completion()
    request.append(2)
    request.logprobs.append(TokenLogprobs(2, -0.5, ()))
    assert request.stream is not None
    request.stream.add(2)
    request.cumulative_logprob = -0.5
    request.finish_reason = "length"
    completion = request.completion()
    assert (completion.index, completion.text, completion.token_ids) == (2, "c", (2,))
    assert completion.finish_reason == "length"
    assert completion.logprobs == (TokenLogprobs(2, -0.5, ()),)
    assert (completion.error, completion.cumulative_logprob) == (None, -0.5)
    assert completion.metrics is request.metrics


def test_completions_without_a_tokenizer_or_log_probabilities() -> None:
    request = make_request(text=False)
    request.finish_reason = "cancelled"
    completion = request.completion()
    assert (completion.text, completion.token_ids, completion.logprobs) == ("", (), None)


def test_pending_tokens_are_those_known_and_not_computed() -> None:
    request = make_request([4, 5, 6])
    request.num_computed = 2
    assert request.num_pending == 1


@pytest.mark.parametrize(("prompt", "left"), [([4, 5, 6], [4, 5]), ([4], [4])])
def test_of_a_prompt_that_nothing_follows_the_last_token_is_not_computed(
    prompt: list[int], left: list[int]
) -> None:
    request = make_request(prompt, SamplingParams(max_tokens=0, prompt_logprobs=1))
    assert not request.generates
    assert request.tokens.tolist() == left
    assert request.score_row is None
    assert make_request(prompt).generates
