"""`prune-to-budget` in a pipeline: what it takes out for a budget, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.prune.to_budget.prune_to_budget import PruneToBudget
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.blockwise import BlockwiseReference
from tests.support.ir_text import nodes_text

QUANTIZE = QuantizeWeights(bits=4, group_size=32, symmetric=False, group_scales="int", head_bits=4)
GPTQ = replace(QUANTIZE, method="gptq")
WHERE = "pass prune-to-budget"
TOKENS = np.random.default_rng(5).integers(0, 26, (4, 48), np.int32)


def passes(
    folder: Path, budget: str, **options: object
) -> tuple[PruneToBudget, AllocateBits, QuantizeWeights]:
    text = {"text": str(folder / "text.txt"), "folder": str(folder), "window_tokens": 48}
    own = {"windows": 12, "measured_windows": 2, "multiple": 32, "shares": (0.7, 0.34)} | options
    formats = {"windows": 6, "measured_windows": 2, "formats": ("2g32", "4g32", "8")}
    return (
        PruneToBudget(**(text | own)),  # type: ignore[arg-type]
        AllocateBits(budget=budget, **(text | formats)),  # type: ignore[arg-type]
        QUANTIZE,
    )


def widths(model: ir.Model) -> dict[str, tuple[int, ...]]:
    return {one.name: one.weight.rows_shape for one in find_linears(model)}


def hidden(model: ir.Model) -> np.ndarray:
    return BlockwiseReference(model, 1).run(TOKENS).copy()


def test_a_budget_below_the_smallest_formats_is_met_by_fewer_neurons(
    model: ir.Model, folder: Path
) -> None:
    """And both passes leave together what one knapsack of all promised."""
    prune, allocate, quantize = passes(folder, "2.7bpw")
    dense = model.clone()
    with pytest.raises(InputError, match=r"cannot be met: the smallest formats reach 2\.970bpw"):
        allocate.run(model.clone(), PassContext(later=(quantize,)))
    first, second, third = Pipeline((prune, allocate, quantize)).run(model)
    facts = first.report.facts
    left = [row["left"][1] for row in facts["structures"]]
    assert min(left) < 96
    assert facts["kl_bits_alone"] is None
    assert first.report.details["neurons"] == 2 * 96 - sum(left)
    settled = first.report.settled
    assert settled["prune-to-budget.left"] == (f"l0.down={left[0]}", f"l1.down={left[1]}")
    whole = sum(rows * columns for rows, columns in widths(dense).values())
    gone = sum(3 * 64 * (96 - n) for n in left)
    bits = second.report.facts["bits_per_weight"] * (whole - gone)
    assert 0.9 * 2.7 * whole < bits <= 2.7 * whole
    assert third.report.facts["bits_per_weight"] == pytest.approx(
        second.report.facts["bits_per_weight"]
    )


def test_the_graph_loses_neurons_and_nothing_else(model: ir.Model, folder: Path) -> None:
    prune, allocate, quantize = passes(folder, "1GB", left=("l0.down=64", "l1.down=96"))
    before = nodes_text(model)
    report = prune.run(model, PassContext(later=(allocate, quantize)))
    assert nodes_text(model) == before
    found = widths(model)
    assert (found["l0.gate"], found["l0.up"], found["l0.down"]) == ((64, 64),) * 3
    assert (found["l1.gate"], found["l1.down"]) == ((96, 64), (64, 96))
    assert report.details["neurons"] == 32
    assert report.settled == {}


def test_what_is_left_is_fitted_to_what_the_layer_gave(model: ir.Model, folder: Path) -> None:
    """Cut columns lose more, on tokens that are not the text's."""
    losses = []
    for refit in (True, False):
        one = model.clone()
        options = {"left": ("l0.down=64", "l1.down=64"), "windows": 32, "refit": refit}
        prune, *later = passes(folder, "1GB", **options)
        prune.run(one, PassContext(later=tuple(later)))
        losses.append(float(np.mean((hidden(one) - hidden(model)) ** 2)))
    assert 0 < losses[0] < 0.95 * losses[1]


def test_where_bits_are_plenty_no_neuron_goes(model: ir.Model, folder: Path) -> None:
    prune, allocate, quantize = passes(folder, "1GB")
    before = hidden(model)
    report = prune.run(model, PassContext(later=(allocate, quantize)))
    assert report.details == {"kept whole": 2}
    assert report.facts["kl_chosen"] == report.facts["kl_bits_alone"]
    assert report.settled == {"prune-to-budget.left": ("l0.down=96", "l1.down=96")}
    np.testing.assert_array_equal(hidden(model), before)


def test_the_least_measured_loss_is_taken(model: ir.Model, folder: Path) -> None:
    """At a budget that bits alone just meet, with GPTQ."""
    prune, allocate, _ = passes(folder, "3.2bpw")
    facts = prune.run(model, PassContext(later=(allocate, GPTQ))).facts
    tried = {tuple(one["left"]): one["kl_measured"] for one in facts["tried"]}
    assert len(tried) > 1
    assert facts["kl_bits_alone"] == tried[96, 96]
    chosen = tuple(row["left"][1] for row in facts["structures"])
    assert facts["kl_chosen"] == tried[chosen] == min(tried.values())


def test_the_manifests_pipeline_measures_nothing_again(
    model: ir.Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = model.clone()
    pipeline = Pipeline(passes(folder, "2.7bpw"))
    records = pipeline.run(model, first=1)
    monkeypatch.setattr(PruneToBudget, "_counts", None)
    settled = pipeline.settled(records)
    assert settled.passes[1].budget != "2.7bpw"  # type: ignore[attr-defined]
    again.graph.meta.clear()
    settled.run(again, first=1)
    assert widths(again) == widths(model)
    np.testing.assert_array_equal(hidden(again), hidden(model))


@pytest.mark.parametrize(("budget", "neurons"), [("2.7bpw", 128), ("2.85bpw", 160)])
def test_a_plan_takes_out_as_little_as_fits(
    model: ir.Model, folder: Path, budget: str, neurons: int
) -> None:
    prune, *later = passes(folder, budget, text="/nowhere")
    prune.run(model, PassContext(later=tuple(later), dry=True))
    assert sum(shape[1] for name, shape in widths(model).items() if "down" in name) == neurons


def test_a_plan_takes_out_nothing_where_bits_do(model: ir.Model, folder: Path) -> None:
    prune, *later = passes(folder, "5bpw", text="/nowhere")
    assert prune.run(model, PassContext(later=tuple(later), dry=True)).details == {"kept whole": 2}


@pytest.mark.parametrize(
    ("budget", "reached"), [("1bpw", "bpw"), ("1KB", "MB"), ("1000000tok/s@1GB/s", "tok/s")]
)
def test_a_budget_that_cannot_be_met_says_what_can(
    model: ir.Model, folder: Path, budget: str, reached: str
) -> None:
    prune, *later = passes(folder, budget)
    with pytest.raises(InputError) as caught:
        prune.run(model, PassContext(later=tuple(later), dry=True))
    assert caught.value.message.startswith(
        f"the budget {budget} cannot be met: the fewest neurons in the smallest formats reach "
    )
    assert caught.value.message.endswith(reached)


def test_without_the_passes_that_keep_the_budget_it_says_so(model: ir.Model, folder: Path) -> None:
    prune, allocate, quantize = passes(folder, "3bpw")
    for later, missing in (([quantize], "allocate-bits"), ([allocate], "quantize-weights")):
        with pytest.raises(InputError, match=f"^{WHERE}: no {missing} comes after it"):
            prune.run(model, PassContext(later=tuple(later)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": ()}, "shares must lie between 0 and 1"),
        ({"shares": (1.0,)}, "shares must lie between 0 and 1"),
        ({"multiple": 0}, "multiple must be at least 1"),
        ({"measured_windows": 0}, "measured_windows must be at least 1"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{WHERE}: {message}"):
        PruneToBudget.from_options(options)
