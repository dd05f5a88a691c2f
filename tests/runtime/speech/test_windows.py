"""Where spans begin and end, and where the next window does."""

from __future__ import annotations

import pytest

from optc.runtime.speech.windows import Place

#: Token of 0 seconds; a time is 0.02 s later than the one before.
T = 100
PLACE = Place(start=1000, frames=3000, frame_seconds=0.01, precision=0.02, first_time=T)


@pytest.mark.parametrize(
    ("tokens", "spans", "heard"),
    [
        # two spans, and a third one that the window's end cut off
        ([T, 1, T + 50, T + 60, 2, T + 90, T + 95, 3], [(10, 11), (11.2, 11.8)], 180),
        # the last time stands alone: nothing is said behind it
        ([T, 1, T + 50, T + 60, 2, T + 90], [(10, 11), (11.2, 11.8)], 3000),
        ([T, 1, T + 50], [(10, 11)], 3000),
        ([T, 1, 2], [(10, 40)], 3000),
        ([], [(10, 40)], 3000),
        # no step back, and no standing still
        ([T, 1, T, T, 2], [(10, 10)], 3000),
    ],
)
def test_spans(tokens: list[int], spans: list[tuple[float, float]], heard: int) -> None:
    found, frames = PLACE.spans(tokens)
    assert len(found) == len(spans)
    for one, ends in zip(found, spans, strict=True):
        assert (one.start, one.end) == pytest.approx(ends)
    assert frames == heard
