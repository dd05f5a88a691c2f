"""What ``--draft self:…`` may say."""

from __future__ import annotations

import pytest

from optc.driver.drafts.draft_spec import DraftSpec, parse_draft
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
    ],
)
def test_a_draft_is_bits_and_depth(text: str, spec: DraftSpec) -> None:
    assert parse_draft(text) == (spec,)
    assert spec.text == text
    assert parse_draft(text.replace("=", " = ").replace(",", " , ")) == (spec,)


def test_auto_is_several_the_cheapest_first() -> None:
    assert [one.text for one in parse_draft("self:auto")] == ["self:bits=2", "self:bits=3"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("self:", "says nothing of the draft (self:bits=2, self:bits=3,depth=0.5, self:auto)"),
        ("self:bits=2,", "says nothing of the draft (self:bits=2"),
        ("self:bit=2", "unknown key 'bit' (did you mean 'bits'?)"),
        ("self:auto,bits=2", "unknown key 'auto' (one of bits, depth)"),
        ("self:bits", "'bits' has no value (self:bits=2,depth=0.5)"),
        ("self:bits=2,bits=3", "'bits' is given twice (self:bits=2,depth=0.5)"),
        ("self:bits=5", "bits=5 (2, 3 or 4)"),
        ("self:bits=two", "bits=two (2, 3 or 4)"),
        ("self:depth=1", "depth=1 (a share between 0 and 1)"),
        ("self:depth=nan", "depth=nan (a share between 0 and 1)"),
        (
            "self:bits=2,width=0.5",
            "drafts with 'width' are not made of the target; a narrower model must be pruned and "
            "trained: make it apart (the keys are bits, depth; --draft FOLDER takes a model made "
            "apart)",
        ),
        ("self:distill=10m", "drafts with 'distill' are not made of the target; a compile trains"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_draft(text)
    assert caught.value.render().startswith(f"--draft {text}: {problem}")


@pytest.mark.parametrize(("depth", "count", "kept"), [(0.5, 6, 3), (0.5, 5, 2), (0.9, 30, 27)])
def test_a_share_of_layers_stays(depth: float, count: int, kept: int) -> None:
    assert DraftSpec(2, depth).layers(count) == kept
    assert DraftSpec(2).layers(count) is None


@pytest.mark.parametrize(("depth", "kept"), [(0.9, 4), (0.1, 0)])
def test_a_share_that_leaves_none_or_all_is_refused(depth: float, kept: int) -> None:
    with pytest.raises(InputError, match=f"--draft: depth={depth} keeps {kept} of 4 layers"):
        DraftSpec(2, depth).layers(4)
