"""`allocate-bits` in a pipeline: what it hands on, keeps to, and refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.budget import allocate_bits as module
from optc.passes.quantize.budget.allocate_bits import AllocateBits, rated_alike
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.budget.sensitivity import Rater
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of

QUANTIZE = QuantizeWeights(bits=4, group_size=32, symmetric=False, group_scales="int", head_bits=4)
GPTQ = replace(QUANTIZE, method="gptq")
WHERE = "pass allocate-bits"


def allocate(folder: Path, **options: object) -> AllocateBits:
    sizes = {"windows": 6, "window_tokens": 48, "formats": ("2g32", "3g32", "4g32", "8")}
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    return AllocateBits(**(text | sizes | options))  # type: ignore[arg-type]


def test_a_pipeline_keeps_to_the_budget_and_says_which_formats(
    model: ir.Model, folder: Path
) -> None:
    pipeline = Pipeline((allocate(folder, budget="4.6bpw"), QUANTIZE))
    dense = model.clone()
    first, second = pipeline.run(model)
    facts, layers = first.report.facts, groups_of(dense, head=True)
    assert second.report.facts["bits_per_weight"] == pytest.approx(facts["bits_per_weight"])
    assert 4.3 < facts["bits_per_weight"] <= 4.6
    assert facts["reached"] == f"{facts['bits_per_weight']:.3f}bpw"
    assert [row["tensors"] for row in facts["tensors"]] == [group.name for group in layers]
    assert facts["kl_sum_of_parts"] == pytest.approx(sum(row["kl"] for row in facts["tensors"]))
    assert facts["kl_measured"] > 0
    formats = {row["tensors"]: row["format"] for row in facts["tensors"]}
    assert f"l0.k={formats['l0.q+k+v']}" in second.spec
    assert second.spec in pipeline.settled([first, second]).spec()


def test_settled_formats_need_no_measuring(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the pipeline of a manifest gives the same weights again."""
    again = model.clone()
    pipeline = Pipeline((allocate(folder, budget="4.6bpw"), GPTQ))
    records = pipeline.run(model)
    monkeypatch.setattr(Rater, "rate", None)
    first, second = pipeline.settled(records).run(again)
    assert first.report.details == {"given": 9}
    assert second.report.details == records[1].report.details


def test_nothing_of_the_same_size_was_rated_better(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rated = []
    rate = Rater.rate

    def kept(self, groups, schemes):
        rated.append(rate(self, groups, schemes))
        return rated[0]

    monkeypatch.setattr(Rater, "rate", kept)
    groups = groups_of(model, head=True)
    given = tuple(f"{name}=4g32" for group in groups[4:] for name in group.tensors)
    fixed = replace(QUANTIZE, layer_bits=given)
    facts = allocate(folder, budget="4.5bpw").run(model, PassContext(later=(fixed,))).facts
    assert [row["format"] for row in facts["tensors"][4:]] == ["4g32"] * 5
    best = min(
        sum(one.kl for one in chosen)
        for chosen in product(*rated[0])
        if sum(g.bits(one.scheme) for g, one in zip(groups, chosen, strict=True))
        <= 4.5 * sum(group.weights for group in groups)
    )
    assert facts["kl_sum_of_parts"] == pytest.approx(best)


def test_a_budget_that_cannot_be_met_says_what_can(model: ir.Model, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        allocate(folder, budget="2.5bpw").run(model, PassContext(later=(QUANTIZE,)))
    assert str(caught.value) == (
        f"{WHERE}: the budget 2.5bpw cannot be met: the smallest formats reach 2.970bpw "
        "(allow more, or smaller formats)"
    )


def test_more_than_enough_is_all_that_helps(model: ir.Model, folder: Path) -> None:
    facts = allocate(folder, budget="1GB").run(model, PassContext(later=(QUANTIZE,))).facts
    assert {row["format"] for row in facts["tensors"]} == {"8"}


def test_a_whole_that_loses_other_than_its_parts_is_told(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = allocate(folder, budget="4.6bpw")
    report = one.run(model, PassContext(later=(QUANTIZE,)))
    ratio = report.facts["kl_measured"] / report.facts["kl_sum_of_parts"]
    low, high = module.EXPECTED_RATIO
    assert (not report.warnings) == (low <= ratio <= high)
    monkeypatch.setattr(module, "EXPECTED_RATIO", (2 * ratio, 3 * ratio))
    again = one.run(model, PassContext(later=(QUANTIZE,)))
    assert again.warnings[0].startswith(f"together the weights lose {ratio:.2f} times the sum of")


def test_a_calibrations_hessians_are_used(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = allocate(folder, budget="4.6bpw")
    one.run(model, PassContext(later=(QUANTIZE,)))
    before = calibration_of(model).digest()
    monkeypatch.setattr(module, "note_hessians", None)
    one.run(model, PassContext(later=(QUANTIZE,)))
    assert calibration_of(model).digest() == before


def test_without_quantize_weights_it_says_what_is_missing(model: ir.Model, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        allocate(folder).run(model)
    assert str(caught.value) == (
        f"{WHERE}: no quantize-weights comes after it "
        "(leave it out, or put quantize-weights behind it)"
    )


def test_float_scales_take_no_few_bits(model: ir.Model, folder: Path) -> None:
    quantize = QuantizeWeights(bits=4, group_size=32, symmetric=False)
    with pytest.raises(InputError, match=r"pass allocate-bits, formats: '2g32' is no format"):
        allocate(folder).run(model, PassContext(later=(quantize,)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "4"}, "'4' is no budget"),
        ({"formats": ()}, "formats must name at least one"),
        ({"measured_windows": 0}, "measured_windows must name at least one"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        AllocateBits(**options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{WHERE}: {message}")


def test_samples_show_every_format() -> None:
    found = {
        (node.attributes["bits"].as_int(), node.attributes["group_size"].as_int())
        for node in AllocateBits(formats=("2g32", "3g64", "8")).samples()
        if node.op_type == "QuantizedMatMul"
    }
    assert {(2, 32), (3, 64), (8, 0)} <= found


def test_without_measurements_an_error_is_the_weights_and_falls_fourfold_with_each_bit(
    model: ir.Model,
) -> None:
    first, *others = groups_of(model, head=False)
    schemes = [Scheme(bits, 16, False) for bits in (2, 3, 8)]
    rated = rated_alike([first, *others], [schemes] * (1 + len(others)))
    assert [one.scheme for one in rated[0]] == schemes
    assert [one.kl for one in rated[0]] == [first.weights / 4**bits for bits in (2, 3, 8)]
    assert not any(one.measured for own in rated for one in own)
    assert [own[0].kl * 16 for own in rated] == [one.weights for one in (first, *others)]
