"""Drafts that need what a recurrent state cannot give are refused; others are not asked about."""

from __future__ import annotations

import pytest

from optc.compiling.drafts.recurrences import check_recurrences
from optc.errors import UnsupportedError
from tests.support.families import FAMILIES, model_after

OPTIONS = {"medusa": "a tree of drafts", "self_draft": "first layers"}


STATES = ("recurrences", "short convolutions")


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(("option", "why"), OPTIONS.items())
def test_the_reason_and_another_way_are_said(option: str, why: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match=why) as caught:
        check_recurrences(model_after("kv-cache", FAMILIES[name]), option)
    assert caught.value.where == f"--{option.replace('_', '-')}"
    assert "--draft" in str(caught.value)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - set(STATES)))
def test_models_without_states_take_any(name: str, option: str) -> None:
    check_recurrences(model_after("kv-cache", FAMILIES[name]), option)
