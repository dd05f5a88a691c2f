"""Rows as arrays for engines that sample; the kernel's own tests draw from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from optc.runtime.executable.sampling import SampleResult
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sample_batch import FIELDS, NAN, NOTHING_ALLOWED, pack, unpack
from optc.runtime.sampling.sampler import NoToken, Row, Sampled
from optc.runtime.scoring.token_logprobs import TokenLogprobs

V = 40
FLOATS = FIELDS[FIELDS.index("temperature") :]


def row(tokens: tuple[int, ...] = (1, 2, 3), *, mask: Any = None, **params: Any) -> Row:
    return Row(SamplingParams(**params), 2**63 + 5, 2, np.array(tokens, np.int32), 2, mask)


def fields(record: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    named = dict(zip(FIELDS, record.tolist(), strict=True))
    floats = dict(zip(FIELDS, record.view(np.float64).tolist(), strict=True))
    return named | {name: floats[name] for name in FLOATS}


def test_a_plain_row_is_its_place_only() -> None:
    batch = pack([row(temperature=0), row(temperature=0)], [4, 1], V)
    assert batch.records.dtype == np.int64
    for record, at in zip(batch.records, (4, 1), strict=True):
        assert fields(record) == dict.fromkeys(FIELDS, 0) | {"logit_row": at, "plain": 1}
    assert [len(a) for a in (batch.tokens, batch.bias_ids, batch.biases)] == [1, 1, 1]
    assert batch.masks.shape == (1, 2)
    assert batch.top == 1


def test_a_record_holds_the_parameters() -> None:
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "min_p": 0.1,
        "typical_p": 0.8,
        "repetition_penalty": 1.25,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
    }
    one = row(top_k=7, logprobs=3, logit_bias={4: 1.5, 9: -np.inf}, **settings)
    batch = pack([one], [6], V)
    assert fields(batch.records[0]) == {
        "logit_row": 6,
        "plain": 0,
        "seed": 2**63 + 5 - 2**64,  # unsigned, read as signed here
        "completion": 2,
        "position": 1,
        "filters": 1,
        "logprobs": 3,
        "top_k": 7,
        "first_token": 0,
        "token_count": 3,
        "prompt_tokens": 2,
        "first_bias": 0,
        "bias_count": 2,
        "mask_row": -1,
        **settings,
    }
    assert batch.tokens.tolist() == [1, 2, 3]
    assert batch.bias_ids.tolist() == [4, 9]
    assert batch.biases.tolist() == [1.5, -np.inf]
    assert batch.top == 3


def test_rows_find_their_own_tokens_biases_and_masks() -> None:
    first, second = (np.array(words, np.uint32) for words in ([1, 2], [3, 4]))
    rows = [
        row(repetition_penalty=2),
        row(logit_bias={5: 1}),
        row((1, 2), mask=first),
        row((7, 8, 9, 1), presence_penalty=1, logit_bias={6: 2, 7: 3}, mask=second),
        row(temperature=0, mask=first),
    ]
    batch = pack(rows, range(5), V)
    named = [fields(record) for record in batch.records]
    assert [(f["first_token"], f["token_count"]) for f in named] == [
        (0, 3),
        (3, 0),
        (3, 0),
        (3, 4),
        (7, 0),
    ]
    assert [(f["first_bias"], f["bias_count"]) for f in named] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 2),
        (3, 0),
    ]
    assert [f["mask_row"] for f in named] == [-1, -1, 0, 1, 2]
    assert named[4]["plain"] == 0, "a mask is more than the largest logit"
    assert batch.tokens.tolist() == [1, 2, 3, 7, 8, 9, 1]
    assert batch.bias_ids.tolist() == [5, 6, 7]
    assert batch.masks.tolist() == [[1, 2], [3, 4], [1, 2]]


def test_more_than_the_vocabulary_is_all_of_it() -> None:
    rows = [row(top_k=V, logprobs=100), row(top_k=V - 1), row(top_k=-1), row(top_k=1)]
    batch = pack(rows, range(4), V)
    assert [fields(r)["top_k"] for r in batch.records] == [0, V - 1, 0, 1]
    assert fields(batch.records[0])["logprobs"] == V
    assert fields(batch.records[1])["logprobs"] == -1
    assert batch.top == V


def test_answers_are_tokens_or_the_reason_why_there_is_none() -> None:
    result = SampleResult(
        np.array([4, 6, NAN, NOTHING_ALLOWED], np.int32),
        np.zeros(4, np.int32),
        np.array([-0.25, -1.5, 0, 0]),
        np.array([[4, 5, 6]] * 4, np.int32),
        np.array([[-0.25, -1.0, -1.5]] * 4),
    )
    rows = [row(), row(logprobs=2), row(logprobs=1), row()]
    assert unpack(result, rows) == [
        Sampled(4, None),
        Sampled(6, TokenLogprobs(6, -1.5, ((4, -0.25), (5, -1.0)))),
        NoToken.NAN,
        NoToken.NOTHING_ALLOWED,
    ]
