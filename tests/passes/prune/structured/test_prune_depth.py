"""`prune-depth` in a pipeline: what goes, what is left, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.ragged import RaggedStep
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassContext, PassReport
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.prune.structured.cut import given_rows
from optc.passes.prune.structured.prune_depth import PruneDepth
from optc.passes.prune.structured.sublayers import find_sublayers
from tests.passes.prune.structured.on_letters import lost, pruning
from tests.support import models
from tests.support.dense_models import dense_model
from tests.support.families import FAMILIES
from tests.support.letters import letters_folder

WHERE = "pass prune-depth"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return letters_folder(tmp_path)


def faint(names: set[str]) -> ir.Model:
    """A model of three layers in which some sub-layers add next to nothing."""
    model = dense_model(3)
    for linear in find_linears(model):
        if linear.name in names:
            rows = linear.weight.read_rows(0, linear.weight.rows_shape[0]) * np.float32(1e-3)
            linear.initializer.const_value = given_rows(linear.weight, rows)
    return model


def left(model: ir.Model) -> list[str]:
    return [one.writer.name for one in find_sublayers(model, PassReport())]


@pytest.mark.parametrize("how", ["kl", "influence"])
@pytest.mark.parametrize(
    ("names", "units", "target"),
    [
        ({"l1.down"}, "any", "0.9x"),
        ({"l2.o"}, "any", "0.9x"),
        ({"l0.down", "l2.down"}, "mlp", "0.4x"),
        ({"l1.o"}, "attention", "0.9x"),
        ({"l1.o", "l1.down"}, "layers", "0.7x"),
    ],
)
def test_what_costs_least_goes(
    folder: Path, names: set[str], units: str, target: str, how: str
) -> None:
    model, whole = faint(names), left(dense_model(3))
    one = pruning(folder, "prune-depth", units=units, target=target, choose=how)
    (record,) = Pipeline((one,)).run(model)
    assert left(model) == [name for name in whole if name not in names]
    taken = [
        name for step in record.report.facts["steps"] for unit in step["taken"] for name in unit
    ]
    assert set(taken) == names
    assert lost(model, faint(names)) < 1e-4
    # layers of the sub-layers that went are out of the graph with all their weights
    gone = {name.partition(".")[0] for name in names} if units == "layers" else set()
    assert not any(name.partition(".")[0] in gone for name in model.graph.initializers)


def test_fitting_what_is_left_loses_less(folder: Path) -> None:
    losses = []
    for refit in (True, False):
        model = dense_model(3)
        options = {"units": "mlp", "target": "0.4x", "refit": refit}
        Pipeline((pruning(folder, "prune-depth", **options),)).run(model)
        losses.append(lost(model, dense_model(3)))
    assert losses[0] < 0.9 * losses[1]


def test_an_attention_takes_its_keys_and_values_along(folder: Path) -> None:
    model = models.dense_model(FAMILIES["gemma2"])
    options = {"units": "attention", "target": "0.7x", "refit": False}
    (record, *_) = Pipeline((pruning(folder, "prune-depth", **options), KVCache())).run(model)
    assert record.report.details == {"attention": 1}
    assert len(RaggedStep.of(model).kv.layers) == 2


def test_one_attention_stays_and_more_is_refused(folder: Path) -> None:
    options = {"units": "attention", "target": "0.1x", "refit": False}
    with pytest.raises(InputError) as caught:
        pruning(folder, "prune-depth", **options).run(dense_model(2))
    assert str(caught.value) == (
        f"{WHERE}: the target 0.1x (1,843 weights) cannot be met: the least that it can leave is "
        "9,216 weights (allow more, or put another pass that prunes beside it)"
    )


def test_a_plan_takes_out_as_much(folder: Path) -> None:
    model = dense_model(3)
    one = pruning(folder, "prune-depth", units="mlp", target="0.9x", text="/nowhere")
    assert one.run(model, PassContext(dry=True)).details == {"mlp": 1}
    assert len(left(model)) == 5


def test_results_that_do_not_vanish_are_refused_with_the_nearest_miss(folder: Path) -> None:
    shape = replace(FAMILIES["starcoder2"], post_norms=True, pre_norms=False)
    with pytest.raises(InputError) as caught:
        pruning(folder, "prune-depth", units="mlp").run(models.dense_model(shape))
    assert str(caught.value) == (
        f"{WHERE}: no sub-layer that can be taken out was found (nearest miss: add_4: what it adds "
        "does not vanish with the weight of one linear layer) (leave the pass out)"
    )


def test_biases_of_what_went_count_in_the_fit(folder: Path) -> None:
    losses, shape = [], replace(FAMILIES["starcoder2"], windows=(6, 6, 6))
    for refit in (True, False):
        model = models.dense_model(shape)
        options = {"units": "mlp", "target": "0.4x", "refit": refit}
        Pipeline((pruning(folder, "prune-depth", **options),)).run(model)
        assert len(left(model)) == 4
        losses.append(lost(model, models.dense_model(shape)))
    assert losses[0] < 0.9 * losses[1]


def test_it_says_what_the_model_had_and_has(folder: Path) -> None:
    model = dense_model(2)
    options = {"units": "mlp", "target": "0.9x", "refit": False}
    (record,) = Pipeline((pruning(folder, "prune-depth", **options),)).run(model)
    before, after = record.report.facts["parameters"]
    values = model.graph.initializers.values()
    size = sum(v.const_value.size for v in values if v.const_value and v.name != "embedding")
    assert after == size + 48  # the norm that only the MLP needed went, too
    assert before - after == 3 * 48 * 80


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("units", "heads", "units=heads is not possible"),
        ("choose", "luck", "choose=luck is not possible"),
        ("target", "2x", "'2x' is no share"),
    ],
)
def test_options_that_mean_nothing_are_refused(option: str, value: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PruneDepth.from_options({option: value})
