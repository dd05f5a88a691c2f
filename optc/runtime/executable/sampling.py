"""The interface of an engine that samples: the batch that it gets, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Executable, Float32, Int32


@dataclass(frozen=True)
class SampleBatch:
    """Rows of logits to sample; made by `optc.runtime.sampling.sample_batch`.

    Shapes: N rows, F fields, V tokens.

    Attributes:
        records: int64 [N, F] a row's parameters (`optc.runtime.sampling.sample_batch.FIELDS`).
        tokens: [t] prompts and outputs of the rows that penalties concern.
        bias_ids: [b] tokens with a bias.
        biases: [b] float32.
        masks: uint32 [m, ceil(V / 32)]; bit i of word w allows token 32 w + i.
        top: Most likely tokens to report of any row, at least 1.
    """

    records: npt.NDArray[np.int64]
    tokens: Int32
    bias_ids: Int32
    biases: Float32
    masks: npt.NDArray[np.uint32]
    top: int


class SampleResult(NamedTuple):
    """The drawn tokens and their log-probabilities; arrays are only valid until the next call.

    Attributes:
        tokens: [N] tokens; negative where none could be drawn.
        best: [N] the likeliest token of each row of logits as it is; -1 if it holds a NaN.
        logprobs: float64 [N] log-probability of the token, of rows that want it.
        top_ids: [N, top] likeliest tokens, of rows that want them.
        top_logprobs: float64 [N, top] theirs.
    """

    tokens: Int32
    best: Int32
    logprobs: npt.NDArray[np.float64]
    top_ids: Int32
    top_logprobs: npt.NDArray[np.float64]


class SamplingExecutable(Executable, Protocol):
    """An engine that samples, with the results of `optc.runtime.sampling.sampler`, bit for bit."""

    def sample(self, batch: SampleBatch) -> SampleResult:
        """Draw from rows of the logits of the last step."""
        ...
