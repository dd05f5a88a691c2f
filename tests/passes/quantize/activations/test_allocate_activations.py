"""`allocate-activations` in a pipeline: what it hands on, keeps to, and refuses."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.quantize.activations import allocate_activations, rounded_inputs
from optc.passes.quantize.activations import allocate_activations as module
from optc.passes.quantize.activations.allocate_activations import AllocateActivations
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.quantize_weights import QuantizeWeights

QUANTIZE = QuantizeWeights()
WHERE = "pass allocate-activations"


def allocate(folder: Path, **options: object) -> AllocateActivations:
    sizes = {"windows": 6, "window_tokens": 48}
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    return AllocateActivations(**(text | sizes | options))  # type: ignore[arg-type]


def bits_read(model: ir.Model) -> list[int]:
    """Of each quantized layer's input."""
    found = []
    for node in model.graph:
        if node.op_type == "QuantizedMatMul" and (q := node.inputs[0]) is not None:
            producer = q.producer()
            found.append(producer.attributes.get_int("bits", 8) if producer else 0)
    return found


def test_the_best_layers_within_the_budget_read_16_bits(model: ir.Model, folder: Path) -> None:
    groups = groups_of(model, head=True)
    weights = [0 if group.is_head else group.weights for group in groups]
    pipeline = Pipeline((allocate(folder, budget=1.4), QUANTIZE))
    first, second = pipeline.run(model)
    facts = first.report.facts
    rows = facts["tensors"]
    wide = [row["bits"] == 16 for row in rows]
    assert [row["tensors"] for row in rows] == [group.name for group in groups]
    assert first.report.details == {"16 bits": sum(wide), "8 bits": 9 - sum(wide)}
    kls = [row["kl"] for row in rows]
    assert facts["kl_sum_of_8_bits"] == pytest.approx(sum(kls))
    left = sum(kl for kl, one in zip(kls, wide, strict=True) if not one)
    assert facts["kl_sum_of_parts"] == pytest.approx(left)
    share = sum(w for w, one in zip(weights, wide, strict=True) if one) / sum(weights)
    assert facts["reached"] == pytest.approx(1 + share)
    assert share <= 0.4
    assert wide[-1]  # the head costs a prompt nothing
    best = min(
        sum(kl for kl, one in zip(kls, choice, strict=True) if not one)
        for choice in product((False, True), repeat=9)
        if sum(w for w, one in zip(weights, choice, strict=True) if one) <= 0.4 * sum(weights)
    )
    assert left == pytest.approx(best)
    assert 0 < facts["kl_measured"] < 3 * left
    # q, k and v, and gate and up, read one input each
    each = [bits for group, one in zip(groups, wide, strict=True)
            for bits in [16 if one else 8] * len(group.linears)]  # fmt: skip
    assert bits_read(model) == each
    assert second.spec in pipeline.settled([first, second]).spec()


def test_settled_layers_need_no_measuring(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the pipeline of a manifest gives the same engine again."""
    again = model.clone()
    pipeline = Pipeline((allocate(folder, budget=1.4), QUANTIZE))
    records = pipeline.run(model)
    monkeypatch.setattr(rounded_inputs, "losses", None)
    first, _ = pipeline.settled(records).run(again)
    assert list(first.report.details) == ["given"]
    assert bits_read(again) == bits_read(model)


@pytest.mark.parametrize(("budget", "bits"), [(1.0, 8), (2.0, 16)])
def test_where_nothing_is_to_choose_nothing_is_measured(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch, budget: float, bits: int
) -> None:
    monkeypatch.setattr(rounded_inputs, "losses", None)
    (record, _) = Pipeline((allocate(folder, budget=budget), QUANTIZE)).run(model)
    assert set(bits_read(model)) == {bits}
    assert record.report.facts == {"budget": budget, "reached": budget}


def test_layers_that_stay_on_the_checkpoints_grid_are_no_choice(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = groups_of(model, head=True)
    kept = {linear.initializer for group in groups[:5] for linear in group.linears}
    kept.discard(groups[4].linears[0].initializer)  # of which one layer stays, and one does not
    monkeypatch.setattr(allocate_activations, "kept_grids", lambda *given: kept)
    later = [QuantizeWeights(given_activation_bits=16)]
    report = allocate(folder, budget=1.4).run(model, PassContext(later=tuple(later)))
    assert [row["tensors"] for row in report.facts["tensors"]] == [one.name for one in groups[4:]]
    assert report.details["16 bits, on the checkpoint's grid"] == 4
    assert report.count == 9
    plain = allocate(folder, budget=1.4).run(model, PassContext(later=(QUANTIZE,), dry=True))
    assert "16 bits, on the checkpoint's grid" not in plain.details


def test_unread_it_keeps_to_the_budget(model: ir.Model, folder: Path) -> None:
    report = allocate(folder, budget=1.4).run(model, PassContext(later=(QUANTIZE,), dry=True))
    assert 1.2 < report.facts["reached"] <= 1.4


def test_of_large_models_few_layers_are_measured(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last of each role: with two layers, all; the loss of one is another's."""
    monkeypatch.setattr(module, "runs_within", lambda roles, *_: ([0, 1, 2, 3, 8], 1))
    rows = allocate(folder, budget=1.4).run(model, PassContext(later=(QUANTIZE,))).facts["tensors"]
    assert [row["measured"] for row in rows] == [True] * 4 + [False] * 4 + [True]
    assert [row["kl"] for row in rows[4:8]] == [row["kl"] for row in rows[:4]]


def test_what_is_not_measured_takes_no_memory(model: ir.Model, folder: Path) -> None:
    for budget in (1.0, 2.0):
        assert allocate(folder, budget=budget).costs(model).working == 0
    assert allocate(folder, budget=1.5).costs(model).working > 4 * 48 * 64 * 4 * 10


def test_without_quantize_weights_it_says_what_is_missing(model: ir.Model, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        allocate(folder).run(model)
    assert str(caught.value) == (
        f"{WHERE}: no quantize-weights comes after it "
        "(leave it out, or put quantize-weights behind it)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.9}, "budget=0.9 is not from 1 (8 bits everywhere) to 2 (16 bits)"),
        ({"budget": 2.5}, "budget=2.5 is not from 1 (8 bits everywhere) to 2 (16 bits)"),
        ({"measured_windows": 0}, "measured_windows must be at least one"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        AllocateActivations(**options)  # type: ignore[arg-type]
    assert str(caught.value) == f"{WHERE}: {message}"


def test_samples_show_16_bits() -> None:
    wide = [n for n in AllocateActivations(budget=1.5).samples() if n.op_type[:8] == "Quantize"]
    assert {node.attributes.get_int("bits", 8) for node in wide if "Act" in node.op_type} == {16}
    assert not AllocateActivations(budget=1.0).samples()
