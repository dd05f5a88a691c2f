"""Who samples the rows of a step; both ways give the same."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from optc.runtime.executable.executable import Float32
from optc.runtime.executable.sampling import SampleBatch, SampleResult
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sample_step import Samples, sample_step
from optc.runtime.sampling.sampler import NoToken, Row, Sampled
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from tests.runtime.support.toy import ToyExecutable, toy_spec

V = 5
LOGITS: Float32 = np.array([[0, 1, 5, 2, 3], [9, 1, 2, 3, 4]], np.float32)


def row(**params: object) -> Row:
    chosen = SamplingParams(**params)  # type: ignore[arg-type]
    return Row(chosen, 1, 0, np.array([1], np.int32), 1)


class Sampler(ToyExecutable):
    """An engine that samples: it says where its answers come from."""

    def __init__(self) -> None:
        super().__init__(replace(toy_spec(vocab=V), samples=True))
        self.asked: list[SampleBatch] = []

    def sample(self, batch: SampleBatch) -> SampleResult:
        self.asked.append(batch)
        count = len(batch.records)
        return SampleResult(
            np.array([3, -1, -2][:count], np.int32),
            np.array([4, 4, 4][:count], np.int32),
            np.array([-0.5] * count),
            np.tile(np.arange(batch.top, dtype=np.int32), (count, 1)),
            np.tile(-np.arange(batch.top, dtype=np.float64), (count, 1)),
        )


@pytest.mark.parametrize("executable", [ToyExecutable(toy_spec(vocab=V)), Sampler()])
def test_no_rows_ask_nobody(executable: ToyExecutable) -> None:
    assert sample_step(executable, LOGITS, [], []) == Samples([], [])
    assert not getattr(executable, "asked", [])


def test_numpy_samples_where_the_engine_does_not() -> None:
    executable = ToyExecutable(toy_spec(vocab=V))
    rows = [row(temperature=0), row(temperature=0, logit_bias={4: 9.0}), row(temperature=0)]
    samples = sample_step(executable, LOGITS, rows, [1, 0, 0])
    assert samples.drawn == [Sampled(0, None), Sampled(4, None), Sampled(2, None)]
    assert samples.best == [0, 2, 2], "of the logits as they are"


def test_the_engine_samples_where_it_can() -> None:
    executable = Sampler()
    rows = [row(logprobs=2), row(), row()]
    samples = sample_step(executable, LOGITS, rows, [1, 0, 0])
    (batch,) = executable.asked
    assert batch.records[:, 0].tolist() == [1, 0, 0]
    likely = TokenLogprobs(3, -0.5, ((0, 0.0), (1, -1.0)))
    assert samples.drawn == [Sampled(3, likely), NoToken.NAN, NoToken.NOTHING_ALLOWED]
    assert samples.best == [4, 4, 4]
