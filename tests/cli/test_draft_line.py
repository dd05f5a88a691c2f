"""The line about a draft that a compile made of the target."""

from __future__ import annotations

from typing import Any

import pytest

from optc.cli.draft_line import draft_figures, draft_line

FOUND = {"acceptance": 0.914, "cost": 0.361, "drafts": 4, "tokens_per_pass": 4.65, "gain": 1.9}
MADE = {"spec": "self:bits=3", "passes": [{"name": "p"}], "prediction": FOUND}


def test_a_measured_draft_has_its_line() -> None:
    assert draft_line({"draft": MADE}) == (
        "draft self:bits=3: accepted at 91% of places, with 4 drafts 4.65 tokens a pass, a draft "
        "step 0.36 of the target's: predicted 1.90 times as fast"
    )
    assert draft_figures({"draft": MADE}) == {"draft": {"spec": "self:bits=3", "prediction": FOUND}}


@pytest.mark.parametrize("draft", [{}, {"draft": {"passes": []}}])
def test_others_have_none(draft: dict[str, Any]) -> None:
    assert draft_line(draft) == ""
    assert draft_figures(draft) == {}


def test_a_draft_that_was_not_measured_has_no_line() -> None:
    made = {**MADE, "prediction": None, "not_measured": "the gates were switched off"}
    assert draft_line({"draft": made}) == ""
    assert draft_figures({"draft": made})["draft"]["not_measured"] == "the gates were switched off"
