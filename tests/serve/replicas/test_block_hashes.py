"""Hashes of prompts are those of the prefix cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.params import SamplingParams
from optc.serve.replicas.block_changes import BlockChanges
from optc.serve.replicas.block_hashes import block_hashes
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.serve.toys import toy_engine

WHOLE = toy_spec((0,), vocab=280, max_context=512, max_sequences=4)


@pytest.mark.parametrize("salt", ["", "a tenant"])
def test_a_cache_has_them_once_a_prompt_is_computed(salt: str) -> None:
    log = BlockChanges()
    prompt = np.arange(30, 70, dtype=np.int32)
    with toy_engine(lambda: ToyExecutable(WHOLE), log=log, block_size=8) as engine:
        engine.generate([prompt.tolist()], SamplingParams(max_tokens=2), salt=salt)
        have = set(log.since(0).stored)
    hashes = block_hashes(f"\0{salt}", prompt, 8)
    assert len(hashes) == 4  # the fifth block ends with the last token, which is computed anew
    assert set(hashes) <= have
    assert not set(block_hashes("\0other", prompt, 8)) & have
    assert not set(block_hashes(f"1\0{salt}", prompt, 8)) & have
    assert log.since(0).stored == ()  # the engine is closed


@given(
    tokens=st.lists(st.integers(0, 300), max_size=40),
    other=st.lists(st.integers(0, 300), max_size=40),
    size=st.integers(1, 9),
)
def test_equal_prefixes_have_equal_hashes(tokens: list[int], other: list[int], size: int) -> None:
    one = block_hashes("\0", np.array(tokens, np.int32), size)
    two = block_hashes("\0", np.array(other, np.int32), size)
    assert len(one) == max(0, len(tokens) - 1) // size
    for count, (a, b) in enumerate(zip(one, two, strict=False), 1):
        assert (a == b) == (tokens[: count * size] == other[: count * size])
