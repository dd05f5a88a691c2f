"""Events from bytes that are cut anywhere."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from optc.proof.bench.online.events import EventReader

STREAM = (
    b': ping\n\ndata: {"a": 1}\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: 3\n\n'
    b"data: [DONE]\n\n"
)
EVENTS = [b'{"a": 1}', b"two\nlines", b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    reader, found = EventReader(), []
    ends = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(ends):
        found += reader.feed(STREAM[begin:end])
    assert found == EVENTS


def test_an_event_without_an_end_is_none() -> None:
    assert EventReader().feed(b"data: a\n") == []
