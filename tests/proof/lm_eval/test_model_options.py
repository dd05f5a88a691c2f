from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.lm_eval.model_options import ModelOptions, split


def test_options_go_to_the_model_or_to_the_load() -> None:
    given = {"max_length": 9, "threads": 2, "batch_size": 8, "device": "cpu", "engine": "a"}
    assert split(given) == (ModelOptions(max_length=9), {"threads": 2, "engine": "a"})


def test_an_unknown_option_is_said() -> None:
    with pytest.raises(InputError, match=r"'thread' is no argument .*did you mean 'threads'"):
        split({"thread": 2})
