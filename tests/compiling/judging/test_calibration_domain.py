"""The verdict on a calibration text's domain."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from optc.compiling.judging.calibration_domain import DomainVerdict, judge_domain, verdict_on
from optc.compiling.resolving.options import ResolvedOptions
from optc.proof.reference.text_fit import TextFit
from tests.support.dense_models import dense_model

#: As measured of pycode: code such as it was trained on, prose, and the shipped evaluation text.
CODE, PROSE, MIXED = (
    TextFit(110_000, 2.178, 6.663),
    TextFit(510_000, 5.207, 6.046),
    TextFit(30_000, 4.596, 6.358),
)


def test_a_text_of_the_domain_is_fine_whatever_the_evaluation_text_is() -> None:
    for evaluation in (CODE, MIXED, PROSE):
        found = verdict_on(CODE, evaluation, "code.jsonl")
        assert found.warnings == ()
        assert found.facts["calibration"]["explained"] == pytest.approx(0.673, abs=1e-3)


def test_prose_for_a_model_of_code_is_called_out_whatever_the_evaluation_text_is() -> None:
    for evaluation in (CODE, MIXED, PROSE):
        (warning,) = verdict_on(PROSE, evaluation, "prose.txt").warnings
        assert warning.startswith("the calibration text (prose.txt) is hardly of the")
    (warning,) = verdict_on(PROSE, CODE, "prose.txt").warnings
    assert warning == (
        "the calibration text (prose.txt) is hardly of the model's domain: the model explains 14% "
        "of it and 67% of the evaluation text (loss 5.21 of 6.05 nats a token, and 2.18 of 6.66); "
        "--calibration FILE takes one such as the model was trained on"
    )


def test_a_text_that_is_explained_less_than_the_evaluation_text_is_called_out() -> None:
    half = TextFit(120_000, 4.118, 6.494)
    assert verdict_on(half, CODE, "shipped with optc").warnings
    assert not verdict_on(half, MIXED, "shipped with optc").warnings


def test_without_a_tokenizer_there_is_no_text_to_judge(tmp_path: Path) -> None:
    options = cast(ResolvedOptions, None)
    assert judge_domain(options, dense_model(1), None, tmp_path) == DomainVerdict()
