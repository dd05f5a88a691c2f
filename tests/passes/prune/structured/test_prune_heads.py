"""`prune-heads` in a pipeline: which KV heads go, what is left, and what it refuses."""

from __future__ import annotations

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
from optc.passes.prune.structured.channels import KV_GROUPS, find_channels
from optc.passes.prune.structured.cut import given_rows, slices_of
from tests.passes.prune.structured.on_letters import lost, pruning
from tests.support import models
from tests.support.dense_models import HEAD, D, dense_model
from tests.support.families import FAMILIES
from tests.support.letters import letters_folder

WHERE = "pass prune-heads"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return letters_folder(tmp_path)


def faint(layer: int, group: int) -> ir.Model:
    """A model of two layers whose output hardly depends on one KV head."""
    model = dense_model(2)
    one = find_channels(model, KV_GROUPS, PassReport())[layer]
    (linear,) = one.linears
    rows = linear.weight.read_rows(0, D).copy()
    rows[:, slices_of(rows.shape[1], one.units, np.array([group]))] *= 1e-3
    linear.initializer.const_value = given_rows(linear.weight, rows)
    return model


@pytest.mark.parametrize(("layer", "group"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("refit", [True, False])
def test_the_head_that_costs_least_goes_with_its_query_heads(
    folder: Path, layer: int, group: int, refit: bool
) -> None:
    model = faint(layer, group)
    one = pruning(folder, "prune-heads", target="0.76x", refit=refit)
    (record,) = Pipeline((one,)).run(model)
    (step,) = record.report.facts["steps"]
    assert step["taken"] == [[f"l{layer}.o", group]]
    assert len(step["kl"]) == 4
    assert record.report.details["kv groups"] == 1
    shapes = {one.name: one.weight.rows_shape for one in find_linears(model)}
    assert shapes[f"l{layer}.o"] == (D, 2 * HEAD)
    assert shapes[f"l{layer}.q"] == (2 * HEAD, D)
    assert shapes[f"l{layer}.k"] == shapes[f"l{layer}.v"] == (HEAD, D)
    assert shapes[f"l{1 - layer}.o"] == (D, 4 * HEAD)
    assert lost(model, faint(layer, group)) < 1e-4  # fitted in bfloat16 where the CPU has it


def test_layers_may_keep_different_numbers_of_kv_heads(folder: Path) -> None:
    model = models.dense_model(FAMILIES["llama"])
    Pipeline((pruning(folder, "prune-heads", target="0.76x"), KVCache())).run(model)
    heads = [layer.kv_heads for layer in RaggedStep.of(model).kv.layers]
    assert sorted(heads) == [1, 2]


def test_fitting_the_output_layer_loses_less_than_a_cut(folder: Path) -> None:
    losses = []
    for refit in (True, False):
        model = dense_model(3)
        Pipeline((pruning(folder, "prune-heads", target="0.6x", refit=refit),)).run(model)
        losses.append(lost(model, dense_model(3)))
    assert losses[0] < 0.9 * losses[1]


def test_every_layer_keeps_a_head_and_more_is_refused(folder: Path) -> None:
    model = dense_model(2)
    Pipeline((pruning(folder, "prune-heads", target="0.5x", refit=False),)).run(model)
    assert [one.units for one in find_channels(model, KV_GROUPS, PassReport())] == [1, 1]
    with pytest.raises(InputError) as caught:
        pruning(folder, "prune-heads", target="0.4x", refit=False).run(dense_model(2))
    assert str(caught.value) == (
        f"{WHERE}: the target 0.4x (7,373 weights) cannot be met: the least that it can leave is "
        "9,216 weights (allow more, or put another pass that prunes beside it)"
    )


def test_a_plan_takes_out_as_many(folder: Path) -> None:
    model = dense_model(2)
    one = pruning(folder, "prune-heads", target="0.76x", text="/nowhere")
    assert one.run(model, PassContext(dry=True)).details == {"kv groups": 1}


def test_attentions_without_spare_heads_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="no KV heads that can be taken out were found"):
        pruning(folder, "prune-heads").run(models.dense_model(FAMILIES["qwen3"]))
    with pytest.raises(
        InputError, match=r"nearest miss: matmul_\d+: RMSNormalization, which mixes"
    ):
        pruning(folder, "prune-heads").run(models.dense_model(FAMILIES["olmo2"]))
