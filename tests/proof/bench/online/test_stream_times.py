from __future__ import annotations

import pytest

from optc.proof.bench.online.stream_times import StreamTimes


def test_several_tokens_a_chunk() -> None:
    times = StreamTimes(1.0, token_times_s=[1.5, 2.0, 3.0], tokens=7)
    assert times.ttft_s == 0.5
    assert times.itl_s == (0.5, 1.0)
    assert times.tpot_s == pytest.approx(1.5 / 6)
    assert StreamTimes(1.0).tokens == 0


@pytest.mark.parametrize(("chunks", "tokens"), [([1.0], 5), ([1.0, 2.0], 1), ([], 0)])
def test_a_single_chunk_or_token_has_no_rate(chunks: list[float], tokens: int) -> None:
    assert StreamTimes(0.0, token_times_s=chunks, tokens=tokens).tpot_s is None
