"""The compiled sampler against NumPy's, bit for bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.sampling.sampling import Sampling
from optc.runtime.executable.executable import Float32
from optc.runtime.executable.sampling import SampleResult
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sample_batch import pack, unpack
from optc.runtime.sampling.sampler import Drawn, NoToken, Row, Sampled, best_tokens, sample
from tests.arm.kernels import only_here
from tests.backends.tvm.kernel_cases import TARGETS, compiled, isa_named, run

#: Below one vector, a chunk and its neighbours, several chunks with an odd rest.
VOCABULARIES = (9, 64, 601)


def draw(isa: Isa, logits: Float32, rows: list[Row], at: list[int]) -> tuple[list[Drawn], Any]:
    """What the kernel draws, and the likeliest tokens."""
    batch = pack(rows, at, logits.shape[1])
    results = (
        np.full(len(rows), 99, np.int32),
        np.full(len(rows), 99, np.int32),
        np.full(len(rows), np.nan),
        np.full((len(rows), batch.top), 99, np.int32),
        np.full((len(rows), batch.top), np.nan),
    )
    inputs = (batch.tokens, batch.bias_ids, batch.biases, batch.masks)
    records = (batch.records, batch.records.view(np.float64))
    arrays = run(Sampling(logits.shape[1]), isa, logits, *records, *inputs, *results)
    result = SampleResult(*arrays[-5:])
    return unpack(result, rows), result.best


def expected(logits: Float32, rows: list[Row], at: list[int]) -> list[Drawn]:
    return sample(logits[at], rows)


PARAMS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 1e-310, 1e-5, 0.3, 1.0, 2.5, 50.0])},
    optional={
        "top_k": st.sampled_from([1, 2, 5, 40, 300, 1000]),
        "top_p": st.sampled_from([1e-300, 0.1, 0.5, 0.9, 0.999]),
        "min_p": st.sampled_from([1e-14, 0.01, 0.3, 1.0]),
        "typical_p": st.sampled_from([0.05, 0.5, 0.95]),
        "logprobs": st.sampled_from([0, 1, 5, 20]),
        "repetition_penalty": st.sampled_from([0.7, 1.3]),
        "presence_penalty": st.sampled_from([-0.5, 0.2]),
        "frequency_penalty": st.sampled_from([-0.3, 0.7]),
        "logit_bias": st.just({3: 5.0, 7: -np.inf, 8: 1.25}),
    },
)


def some_logits(rng: Any, count: int, vocab: int, kind: str, spread: float) -> Float32:
    logits = (rng.normal(size=(count, vocab)) * spread).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "impossible":
        logits[rng.random(logits.shape) < 0.4] = -np.inf
    elif kind == "broken":
        logits[rng.integers(0, count), rng.integers(0, vocab)] = rng.choice([np.nan, np.inf])
    return logits


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    vocab=st.sampled_from(VOCABULARIES),
    options=st.lists(PARAMS, min_size=1, max_size=5),
    kind=st.sampled_from(["plain", "ties", "impossible", "broken"]),
    spread=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
    masked=st.sampled_from(["never", "sometimes", "tightly"]),
    seed=st.integers(0, 2**32),
)
def test_rows_give_what_numpy_gives(
    target: str,
    vocab: int,
    options: list[dict[str, Any]],
    kind: str,
    spread: float,
    masked: str,
    seed: int,
) -> None:
    """Tokens, log-probabilities and failures, of ragged rows together, some of one row twice."""
    rng = np.random.default_rng(seed)
    logits = some_logits(rng, len(options), vocab, kind, spread)
    rows, at = [], []
    for params in options:
        tokens = rng.integers(0, vocab, rng.integers(1, 40)).astype(np.int32)
        mask = None
        if masked != "never" and rng.random() < 0.7:
            share = 0.5 if masked == "sometimes" else 2 / vocab
            allowed = np.zeros(-(-vocab // 32) * 32, np.uint8)
            allowed[:vocab] = rng.random(vocab) < share
            mask = np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32)
        key = int(rng.integers(0, 2**63)) * 2 + 1
        rows.append(Row(SamplingParams(**params), key, len(rows), tokens, 1, mask))
        at.append(int(rng.integers(0, len(options))))
    drawn, best = draw(isa_named(target), logits, rows, at)
    assert drawn == expected(logits, rows, at)
    nan = np.isnan(logits[at]).any(axis=1)
    assert best.tolist() == np.where(nan, -1, best_tokens(logits[at])).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_every_draw_of_a_long_row_is_numpys(target: str) -> None:
    """The bounds that rule out chunks and words, over many positions."""
    logits = (np.random.default_rng(5).normal(size=(1, 5003)) * 2).astype(np.float32)
    for options in ({}, {"temperature": 3.0}, {"top_p": 0.8}, {"typical_p": 0.9}, {"top_k": 50}):
        rows = [
            Row(SamplingParams(**options), 7, 1, np.zeros(1 + i, np.int32), 1)  # type: ignore[arg-type]
            for i in range(60)
        ]
        at = [0] * len(rows)
        assert draw(isa_named(target), logits, rows, at)[0] == expected(logits, rows, at)


@pytest.mark.parametrize("target", TARGETS)
def test_no_token_and_one_token(target: str) -> None:
    isa = isa_named(target)
    logits = np.random.default_rng(0).normal(size=(1, 601)).astype(np.float32)
    for options in ({}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}, {"typical_p": 0.5}):
        mask = np.zeros(19, np.uint32)
        row = Row(SamplingParams(**options), 1, 0, np.zeros(2, np.int32), 1, mask)  # type: ignore[arg-type]
        assert draw(isa, logits, [row], [0])[0] == [NoToken.NOTHING_ALLOWED]
        mask[18] = 1 << 24
        assert draw(isa, logits, [row], [0])[0] == [Sampled(600, None)]


@pytest.mark.parametrize("target", TARGETS)
def test_masses_are_not_contracted(target: str) -> None:
    """A fused multiply-add would round once where NumPy rounds twice. Bounds may have it; vectors
    of float64 are masses only."""
    only_here()
    assembly = compiled(Sampling(601), isa_named(target)).mod.inspect_source("s")
    assert "mulpd" in assembly
    assert not re.search(r"vfn?m(add|sub)\d+pd", assembly)
