"""How requests with a structure end: complete, cut or stuck."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.params import SamplingParams
from tests.runtime.structured.cores import BYTES, PROMPT, add, make_core, spec_of
from tests.runtime.support.traffic import drain


@pytest.mark.parametrize("limit", [1, 5, 11])
def test_the_length_limit_cuts_forced_tokens(limit: int) -> None:
    core, _ = make_core(spec_of((0,)))
    request = add(core, PROMPT, SamplingParams(max_tokens=limit, choice=["yes, please"]))
    drain(core)
    assert BYTES.decode(request.output.tolist()) == "yes, please"[:limit]
    assert request.finish_reason == ("stop" if limit == 11 else "length")
    assert request.metrics.forced_tokens == limit - 1


def test_the_end_ends_also_where_end_tokens_are_ignored() -> None:
    core, _ = make_core(spec_of((0,)))
    params = SamplingParams(max_tokens=30, choice=["yes"], ignore_eos=True)
    open_end = SamplingParams(max_tokens=30, regex="a{1,3}", ignore_eos=True)
    requests = [add(core, PROMPT, params), *(add(core, PROMPT, open_end, i) for i in range(4))]
    drain(core)
    assert [request.finish_reason for request in requests] == ["stop"] * 5


def test_a_grammar_that_cannot_go_on_ends_that_request_alone() -> None:
    core, _ = make_core(spec_of((0,)))
    endless = 'start: /[ab]/ endless\nendless: "c" endless'
    token_a = BYTES.encode("a")[0]
    endless_one = add(core, PROMPT, SamplingParams(max_tokens=9, grammar=endless))
    biased = SamplingParams(max_tokens=9, choice=["a"], logit_bias={token_a: -np.inf})
    stuck = add(core, PROMPT, biased)
    sound = add(core, PROMPT, SamplingParams(max_tokens=9, temperature=0, ignore_eos=True))
    drain(core)
    assert sound.finish_reason == "length"
    assert (stuck.finish_reason, stuck.num_output) == ("error", 0)
    assert str(stuck.completion().error) == (
        "output token 0: the mask, with the request's biases, allows no token "
        "(its grammar cannot go on from here, or logit_bias forbids it)"
    )
    assert (endless_one.finish_reason, endless_one.num_output) == ("error", 1)
    assert str(endless_one.completion().error) == (
        "output token 1: its grammar fails: parser error: Too many items (limit 50000; "
        "ff_tokens); try avoiding single-byte/short lexemes (simplify the grammar)"
    )
