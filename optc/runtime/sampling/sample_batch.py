"""Rows to sample as arrays, for engines that sample, and back from what they answer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Int32
from optc.runtime.executable.sampling import SampleBatch, SampleResult
from optc.runtime.sampling.sampler import Drawn, Mask, NoToken, Row, Sampled
from optc.runtime.scoring.token_logprobs import TokenLogprobs

#: Fields of a row's record, 8 bytes each: integers, from ``temperature`` on float64 numbers.
#: ``plain`` says that the row is greedy and nothing else, and that no other field is set.
FIELDS = (
    "logit_row",
    "plain",
    "seed",
    "completion",
    "position",
    "filters",
    "logprobs",
    "top_k",
    "first_token",
    "token_count",
    "prompt_tokens",
    "first_bias",
    "bias_count",
    "mask_row",
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_RECORD = struct.Struct("<2q2Q10q7d")
_PLAIN = struct.Struct("<2q")
#: What stands for a token where none can be drawn.
NAN = -1
NOTHING_ALLOWED = -2
_REASONS = {NAN: NoToken.NAN, NOTHING_ALLOWED: NoToken.NOTHING_ALLOWED}


def pack(rows: Sequence[Row], at: Sequence[int], vocab: int) -> SampleBatch:
    """The arrays of some rows (at least one).

    Args:
        rows: What to sample.
        at: The row of logits of each.
        vocab: V.
    """
    records = np.zeros((len(rows), len(FIELDS)), np.int64)
    packer = _Packer(records.data.cast("B"), vocab)
    for index, (row, logit_row) in enumerate(zip(rows, at, strict=True)):
        packer.add(index, row, logit_row)
    return packer.batch(records)


class _Packer:
    def __init__(self, buffer: memoryview, vocab: int) -> None:
        self._buffer = buffer
        self._vocab = vocab
        self._top = 0
        self._tokens: list[Int32] = []
        self._token_count = 0
        self._bias_ids: list[int] = []
        self._biases: list[float] = []
        self._masks: list[Mask] = []

    def add(self, index: int, row: Row, logit_row: int) -> None:
        """Write the record of a row."""
        params = row.params
        where = index * _RECORD.size
        if params.plain and row.mask is None:
            _PLAIN.pack_into(self._buffer, where, logit_row, 1)
            return
        first_token, first_bias = self._token_count, len(self._bias_ids)
        if params.adjusts_logits:
            self._add_history(row)
        mask_row = -1
        if row.mask is not None:
            mask_row = len(self._masks)
            self._masks.append(row.mask)
        logprobs = -1 if params.logprobs is None else min(params.logprobs, self._vocab)
        self._top = max(self._top, logprobs)
        top_k = params.top_k if 0 < params.top_k < self._vocab else 0
        _RECORD.pack_into(
            self._buffer,
            where,
            logit_row,
            0,
            row.seed,
            row.completion,
            row.position,
            params.filters,
            logprobs,
            top_k,
            first_token,
            self._token_count - first_token,
            row.num_prompt,
            first_bias,
            len(self._bias_ids) - first_bias,
            mask_row,
            params.temperature,
            params.top_p,
            params.min_p,
            params.typical_p,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
        )

    def _add_history(self, row: Row) -> None:
        params = row.params
        if params.penalizes:
            self._tokens.append(row.tokens)
            self._token_count += len(row.tokens)
        self._bias_ids += params.logit_bias.keys()
        self._biases += params.logit_bias.values()

    def batch(self, records: npt.NDArray[np.int64]) -> SampleBatch:
        """All of it; what is empty gets an element that nobody reads."""
        words = -(-self._vocab // 32)
        return SampleBatch(
            records=records,
            tokens=np.concatenate(self._tokens) if self._tokens else np.zeros(1, np.int32),
            bias_ids=np.array(self._bias_ids or [0], np.int32),
            biases=np.array(self._biases or [0], np.float32),
            masks=np.stack(self._masks) if self._masks else np.zeros((1, words), np.uint32),
            top=max(1, self._top),
        )


def unpack(result: SampleResult, rows: Sequence[Row]) -> list[Drawn]:
    """The result drawn from each row."""
    tokens = result.tokens.tolist()
    drawn: list[Drawn] = []
    for index, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if token < 0:
            drawn.append(_REASONS[token])
        elif row.params.logprobs is None:
            drawn.append(Sampled(token, None))
        else:
            drawn.append(Sampled(token, _logprobs(result, index, token, row.params.logprobs)))
    return drawn


def _logprobs(result: SampleResult, index: int, token: int, count: int) -> TokenLogprobs:
    ids, values = result.top_ids[index, :count], result.top_logprobs[index, :count]
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(token, float(result.logprobs[index]), top)
