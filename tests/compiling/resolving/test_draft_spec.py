"""What ``--draft self:…`` may say."""

from __future__ import annotations

import pytest

from optc.compiling.resolving.draft_spec import DraftSpec, parse_draft
from optc.errors import InputError


@pytest.mark.parametrize("text", ["models/small", "/models/self:bits=2", "self", "bits=2"])
def test_other_texts_are_folders(text: str) -> None:
    assert parse_draft(text) == ()


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("self:bits=2", DraftSpec(2)),
        ("self:depth=0.5", DraftSpec(None, 0.5)),
        ("self:bits=3,depth=0.25", DraftSpec(3, 0.25)),
        ("self:depth=0.5,width=0.75", DraftSpec(None, 0.5, 0.75)),
        ("self:bits=4,width=0.5,distill=10m", DraftSpec(4, None, 0.5, 10.0)),
    ],
)
def test_a_draft_is_bits_and_depth(text: str, spec: DraftSpec) -> None:
    assert parse_draft(text) == (spec,)
    assert spec.text == text
    assert parse_draft(text.replace("=", " = ").replace(",", " , ")) == (spec,)


def test_times_are_minutes_or_seconds() -> None:
    (spec,) = parse_draft("self:depth=0.5,distill=90s")
    assert spec.distill == 1.5
    assert spec.text == "self:depth=0.5,distill=1.5m"


def test_auto_is_several_the_cheapest_first() -> None:
    assert [one.text for one in parse_draft("self:auto")] == ["self:bits=2", "self:bits=3"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("self:", "says nothing of the draft (self:bits=2, self:bits=3,depth=0.5, self:auto)"),
        ("self:bits=2,", "says nothing of the draft (self:bits=2"),
        ("self:bit=2", "unknown key 'bit' (did you mean 'bits'?)"),
        ("self:auto,bits=2", "unknown key 'auto' (one of bits, depth, width, distill)"),
        ("self:bits", "'bits' has no value (self:bits=2,depth=0.5)"),
        ("self:bits=2,bits=3", "'bits' is given twice (self:bits=2,depth=0.5)"),
        ("self:bits=5", "bits=5 (2, 3 or 4)"),
        ("self:bits=two", "bits=two (2, 3 or 4)"),
        ("self:depth=1", "depth=1 (a share between 0 and 1)"),
        ("self:depth=nan", "depth=nan (a share between 0 and 1)"),
        ("self:width=2", "width=2 (a share between 0 and 1)"),
        (
            "self:bits=2,distill=10m",
            "distill trains what pruning leaves, and this draft is not pruned "
            "(self:depth=0.5,bits=4,distill=10m)",
        ),
        ("self:depth=0.5,distill=10", "distill=10 (a time, such as 10m)"),
        ("self:depth=0.5,distill=m", "distill=m (a time, such as 10m)"),
        ("self:depth=0.5,distill=-1m", "distill=-1m (a time, such as 10m)"),
        ("self:depth=0.5,distill=infm", "distill=infm (a time, such as 10m)"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_draft(text)
    assert caught.value.render().startswith(f"--draft {text}: {problem}")
