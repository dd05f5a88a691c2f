"""Work of rating formats grows with formats, variants and GPTQ, and is bounded as the pass is."""

from __future__ import annotations

import pytest

from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.budget.sensitivity import MOST_MACS
from optc.passes.quantize.predictions import rating as module
from optc.passes.quantize.predictions.rating import rating
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import elements
from optc.pipeline.work import Work
from tests.support.dense_models import V, dense_model

TEXT = TextShape(2, 64)


def rated(bits: tuple[int, ...] = (3, 4), measured: int = 3, *, gptq: bool = False) -> Work:
    model = dense_model(2)
    return rating(model, TEXT, groups_of(model, head=True), bits, measured, gptq=gptq)


def test_a_variant_is_half_a_run_and_a_comparison_of_logits() -> None:
    model = dense_model(2)
    groups = groups_of(model, head=True)
    weights = sum(group.weights for group in groups)
    more = rated(measured=2), rated(measured=1)
    assert more[0].float32 - more[1].float32 == len(groups) * TEXT.tokens * weights / 2
    beside = elements(model, TEXT) / 2 + TEXT.tokens * V * 20
    assert more[0].steps - more[1].steps == pytest.approx(len(groups) * beside)
    assert more[0].alone == pytest.approx(2 * more[1].alone)  # rounding, while it waits


def test_every_format_and_gptq_are_more_work() -> None:
    assert rated((3, 4, 5)).steps > rated((3, 4)).steps
    assert rated((3, 4, 5)).float64 == 1.5 * rated((3, 4)).float64 > 0
    assert rated(gptq=True).steps > rated().steps
    assert rated(gptq=True).float32 > rated().float32


def test_variants_are_as_many_as_the_pass_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    few = rated(measured=1).float32 / 2
    monkeypatch.setattr(module, "MOST_MACS", few)
    assert few < MOST_MACS
    assert rated(measured=3).float32 == pytest.approx(few)
