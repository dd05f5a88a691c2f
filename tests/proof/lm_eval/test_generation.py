from __future__ import annotations

from typing import Any

import pytest

from optc.errors import InputError
from optc.proof.lm_eval.generation import params_of
from optc.runtime.params import SamplingParams

GREEDY = {"until": [], "max_gen_toks": 9, "do_sample": False, "temperature": 0.0}
SAMPLED = {"until": ["\n", ""], "max_gen_toks": 9, "do_sample": True, "temperature": 0.7}


@pytest.mark.parametrize(
    ("options", "params"),
    [
        (GREEDY, {"temperature": 0.0}),
        (GREEDY | {"top_p": 0.5, "num_beams": 1}, {"temperature": 0.0, "top_p": 0.5}),
        (SAMPLED, {"temperature": 0.7, "stop": ["\n"]}),
        (
            SAMPLED | {"seed": 8, "top_k": 3},
            {"temperature": 0.7, "stop": ["\n"], "seed": 8, "top_k": 3},
        ),
        (SAMPLED | {"temperature": None}, {"stop": ["\n"]}),
    ],
)
def test_options_of_tasks_become_parameters(
    options: dict[str, Any], params: dict[str, Any]
) -> None:
    assert params_of(options, 5) == SamplingParams(**{"max_tokens": 9, "seed": 5, **params})


def test_what_is_not_followed_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="the task asks for max_length, num_beams"):
        params_of(GREEDY | {"num_beams": 4, "max_length": 3}, 5)
