"""`prune-width` in a pipeline: what it leaves, what it loses, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.prune.structured.prune_width import PruneWidth
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from tests.passes.prune.structured.on_letters import hidden, lost, pruning
from tests.support import models
from tests.support.dense_models import FF, D, dense_builder, dense_model
from tests.support.families import FAMILIES
from tests.support.ir_text import f32, model_of
from tests.support.letters import letters_folder

WHERE = "pass prune-width"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return letters_folder(tmp_path)


def widths(model: object) -> dict[str, tuple[int, ...]]:
    return {one.name: one.weight.rows_shape for one in find_linears(model)}  # type: ignore[arg-type]


def test_it_takes_a_quarter_of_the_neurons_and_loses_less_than_without_a_fit(folder: Path) -> None:
    model, cut = dense_model(2), dense_model(2)
    (record,) = Pipeline((pruning(folder, "prune-width", multiple=4),)).run(model)
    assert widths(model)["l1.down"] == (D, 60)
    assert widths(model)["l1.gate"] == widths(model)["l1.up"] == (60, D)
    assert widths(model)["l1.o"] == (D, 64)
    assert record.report.details == {"neurons": 40, "refitted": 8}
    facts = record.report.facts
    assert facts["neurons"] == {"l0.down": [FF, 60], "l1.down": [FF, 60]}
    assert facts["target"] == ["23,040 weights", "17,280 weights"]
    assert facts["parameters"][0] - facts["parameters"][1] == 2 * 3 * D * 20
    Pipeline((pruning(folder, "prune-width", multiple=4, refit=False),)).run(cut)
    losses = [lost(one, dense_model(2)) for one in (model, cut)]
    assert losses[0] < 0.8 * losses[1]
    assert losses[1] < 0.3


def test_cut_alone_leaves_every_other_weight_as_it_was(folder: Path) -> None:
    model, before = dense_model(1), dense_model(1)
    Pipeline((pruning(folder, "prune-width", multiple=4, refit=False),)).run(model)
    now, then = ({o.name: o.weight for o in find_linears(one)} for one in (model, before))
    np.testing.assert_array_equal(now["l0.o"].read_rows(0, D), then["l0.o"].read_rows(0, D))
    down, up = now["l0.down"].read_rows(0, D), now["l0.up"].read_rows(0, 60)
    columns = then["l0.down"].read_rows(0, D)
    kept = [int(np.flatnonzero((columns == one[:, None]).all(axis=0))[0]) for one in down.T]
    assert kept == sorted(set(kept))
    np.testing.assert_array_equal(up, then["l0.up"].read_rows(0, FF)[kept])


@pytest.mark.parametrize(
    ("target", "left"),
    [("0.5x", 40), ("0.51x", 40), ("58.5K parameters", 56), ("220KB", 48), ("0.05x", 4)],
)
def test_targets_are_met_by_the_most_neurons_that_may_stay(
    folder: Path, target: str, left: int
) -> None:
    model = dense_model(3)
    options = {"multiple": 4, "target": target, "refit": False}
    Pipeline((pruning(folder, "prune-width", **options),)).run(model)
    assert widths(model)["l2.down"] == (D, left)


def test_bytes_count_as_later_passes_store_weights(folder: Path) -> None:
    model, whole = dense_model(1), dense_model(1)
    later = QuantizeWeights(bits=8)
    Pipeline((later,)).run(whole)
    size = sum(v.const_value.nbytes for v in whole.graph.initializers.values() if v.const_value)
    options = {"multiple": 4, "target": f"{size - 9 * 3 * D}", "refit": False}
    options["target"] = f"{(size - 9 * 3 * D) / 1e3}KB"
    one = pruning(folder, "prune-width", **options)
    (record, _) = Pipeline((one, later)).run(model)
    before = record.report.facts["weight_bytes"][0]
    assert abs(before - size) < 0.02 * size
    after = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    assert after <= size - 9 * 3 * D


@pytest.mark.parametrize("family", ["phi3", "starcoder2", "gemma2"])
def test_families_with_fused_plain_and_normed_mlps_are_pruned(family: str, folder: Path) -> None:
    model = models.dense_model(FAMILIES[family])
    one = pruning(folder, "prune-width", multiple=4)
    (record,) = Pipeline((one,)).run(model)
    inner = FAMILIES[family].inner
    assert record.report.details["neurons"] == FAMILIES[family].layers * inner // 4
    losses = [lost(model, models.dense_model(FAMILIES[family]))]
    cut = models.dense_model(FAMILIES[family])
    Pipeline((pruning(folder, "prune-width", multiple=4, refit=False),)).run(cut)
    losses.append(lost(cut, models.dense_model(FAMILIES[family])))
    assert losses[0] < losses[1]


def test_errors_are_propagated_against_the_pruned_model(folder: Path) -> None:
    """What quantizing lost counts from the pruned weights on: at 8 bits next to nothing."""
    model = dense_model(2)
    sizes = {"windows": 32, "window_tokens": 64}
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    propagate = PropagateErrors.from_options(sizes | text)
    passes = (pruning(folder, "prune-width", multiple=4), propagate, QuantizeWeights(bits=8))
    records = Pipeline(passes).run(model)
    assert min(records[1].report.facts["block_sqnr_db"]) > 35
    assert -10 * np.log10(records[0].report.facts["block_loss"][-1]) < 25


def test_a_part_of_the_model_is_cut_as_the_whole_was(folder: Path) -> None:
    """As the first layers of a self-draft are: nothing is measured again."""
    model, one = dense_model(2), pruning(folder, "prune-width", multiple=4)
    part = model.clone()
    calibration_of(model)
    part.graph.meta["optc.calibration"] = calibration_of(model)
    Pipeline((one,)).run(model)
    (folder / "text.txt").unlink()
    report = one.run(part)
    assert report.details == {"neurons": 40}
    np.testing.assert_array_equal(hidden(part), hidden(model))


def test_a_calibration_is_found_again(folder: Path, tmp_path: Path) -> None:
    one = pruning(folder, "prune-width", multiple=4, cache=str(tmp_path / "cache"))
    first, again = dense_model(1), dense_model(1)
    reports = [Pipeline((one,)).run(model)[0].report for model in (first, again)]
    assert "from_cache" not in reports[0].facts
    assert reports[1].facts["from_cache"]
    assert reports[0].details == reports[1].details
    np.testing.assert_array_equal(hidden(first), hidden(again))


def test_a_plan_takes_out_as_much_without_a_text(folder: Path) -> None:
    model = dense_model(2)
    one = pruning(folder, "prune-width", multiple=4, text="/nowhere")
    assert one.run(model, PassContext(dry=True)).details == {"neurons": 40}
    assert widths(model)["l0.down"] == (D, 60)


def test_a_model_without_neurons_is_refused_with_the_nearest_miss(folder: Path) -> None:
    nodes = """
        e = Gather (table, input_ids)
        t = MatMul (e, w)
        s = Softmax (t)
        u = MatMul (s, w2)
        r = Add (e, u)
        logits = MatMul (r, head)"""
    shapes = {"table": (32, 8), "w": (8, 8), "w2": (8, 8), "head": (8, 32)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,32] logits)"
    model = model_of(signature, nodes, {name: f32(*shape) for name, shape in shapes.items()})
    with pytest.raises(InputError) as caught:
        pruning(folder, "prune-width").run(model)
    assert str(caught.value) == (
        f"{WHERE}: no neurons that can be taken out were found (nearest miss: MatMul: Gather, "
        "which mixes channels, gives its input) (leave the pass out)"
    )


def test_a_target_that_neurons_cannot_meet_is_refused(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        pruning(folder, "prune-width", target="1000 parameters").run(dense_model(1))
    assert str(caught.value).startswith(
        f"{WHERE}: the target 1000 parameters (1,000 parameters) cannot be met: the least that it "
        "can leave is "
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "half"}, "'half' is no target"),
        ({"multiple": 0}, "multiple must be at least 1"),
        ({"measured_windows": 0}, "measured_windows must be at least 1"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PruneWidth.from_options(options)


def two_readers() -> ir.Model:
    """A layer whose neurons a second layer reads as well; both results join the residual."""
    built = dense_builder(1)
    model = built.model
    (down,) = (one for one in find_linears(model) if one.name == "l0.down")
    side = ir.node("MatMul", [down.x, built.weight("l0.side", D, FF)])
    total = ir.node("Add", [down.output, side.outputs[0]])
    down.output.replace_all_uses_with(total.outputs[0])
    total.replace_input_with(0, down.output)
    for value in (side.outputs[0], total.outputs[0]):
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["B", "S", D])
    model.graph.insert_after(down.matmul, [side, total])
    return model


@pytest.mark.parametrize("refit", [True, False])
def test_two_layers_that_read_the_same_neurons_lose_the_same(folder: Path, refit: bool) -> None:
    model = two_readers()
    Pipeline((pruning(folder, "prune-width", multiple=4, refit=refit),)).run(model)
    now, then = ({o.name: o.weight for o in find_linears(one)} for one in (model, two_readers()))
    rows = then["l0.up"].read_rows(0, FF)
    left = now["l0.up"].read_rows(0, 60)
    kept = [int(np.flatnonzero((rows == one).all(axis=1))[0]) for one in left]
    for name in ("l0.down", "l0.side"):
        plain = then[name].read_rows(0, D)[:, kept]
        change = np.abs(now[name].read_rows(0, D) - plain).max()
        assert (change > 0) == refit
    assert lost(model, two_readers()) < (0.1 if refit else 0.3)
