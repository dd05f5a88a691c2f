"""Pipelines from entries of recipes: names, groups, options, marks, and what is refused."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.ir.pipeline.entries import read_pipeline, with_options
from tests.ir.pipeline.test_pipeline import Known, Late, Rename


def test_entries_are_names_or_one_name_with_options() -> None:
    entries = ["early", {"rename": {"times": 2, "to": "b"}}, {"late": None}]
    pipeline = read_pipeline(entries, Known())
    assert pipeline.spec() == "early,rename{to=b,times=2},late"
    assert not pipeline.optional | pipeline.required


def test_groups_stand_for_their_passes() -> None:
    assert read_pipeline(["early", "both"], Known()).spec() == "early,rename,late"


def test_marks_are_not_options_of_the_pass() -> None:
    pipeline = read_pipeline(
        [{"rename": {"optional": True}}, {"late": {"required": True}}], Known()
    )
    assert pipeline.passes == (Rename(), Late())
    assert (pipeline.optional, pipeline.required) == ({"rename"}, {"late"})


def refused(*entries: object) -> str:
    with pytest.raises(InputError) as caught:
        read_pipeline(entries, Known(), "a.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("renam", "a.yaml: unknown pass 'renam' (did you mean 'rename'?)"),
        ("zzz", "a.yaml: unknown pass 'zzz' (passes: rename, wish, late, early, strict;"),
        ({"both": {"to": "a"}}, "a.yaml: the group 'both' takes no options (list its passes)"),
        (3, "a.yaml: 3 is no pipeline entry (write 'pass' or 'pass: {…}')"),
        ({"a": {}, "b": {}}, "a.yaml: {'a': {}, 'b': {}} is no pipeline entry"),
        ({"rename": 3}, "a.yaml: {'rename': 3} is no pipeline entry"),
        ({3: {}}, "a.yaml: {3: {}} is no pipeline entry"),
        (
            {"rename": {"speed": 3}},
            "pass rename: unknown option 'speed' (options: to, times, share, loudly)",
        ),
        ({"rename": {"times": 2.5}}, "pass rename: option times=2.5 is not a int"),
        ({"rename": {"optional": 3}}, "pass rename: option optional=3 is neither true nor false"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused(entry: object, message: str) -> None:
    assert refused("early", entry).startswith(message)


def test_other_options_of_a_pass_are_set_together() -> None:
    pipeline = read_pipeline(["rename", "late"], Known())
    changed = with_options(
        pipeline, {"rename.to": "c", "rename.times": "3", "late.optional": "true"}, "--set"
    )
    assert changed.spec() == "rename{to=c,times=3},late{optional=true}"
    assert pipeline.spec() == "rename,late"
    assert with_options(changed, {"late.optional": False}, "--set").spec().endswith(",late")


def test_a_pass_that_does_not_run_has_no_options() -> None:
    with pytest.raises(InputError) as caught:
        with_options(read_pipeline(["rename"], Known()), {"late.x": 1}, "--set")
    assert str(caught.value) == (
        "--set: the recipe does not run the pass 'late' (its passes: rename)"
    )
