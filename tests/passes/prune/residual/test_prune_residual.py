"""`prune-residual` in a pipeline: what it leaves, what it loses, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.forms.ragged import RaggedStep
from optc.ir.linear import find_linears
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.prune.residual.prune_residual import PruneResidual
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.pipeline.pipeline import Pipeline
from optc.reference.calibration import calibration_of
from tests.passes.prune.structured.on_letters import TOKENS, pruning
from tests.support import models
from tests.support.dense_models import FF, D, V, dense_model
from tests.support.families import FAMILIES
from tests.support.letters import letters_folder
from tests.support.ragged import run_dense

WHERE = "pass prune-residual"
NAME = "prune-residual"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letters_folder(tmp_path_factory.mktemp("letters"))


def logits(model: ir.Model) -> np.ndarray:
    return np.concatenate([run_dense(model, row.tolist()) for row in TOKENS[:3]])


def lost(model: ir.Model, original: ir.Model) -> float:
    before = logits(original)
    return float(np.mean((logits(model) - before) ** 2) / np.mean(before**2))


def widths(model: ir.Model) -> dict[str, tuple[int, ...]]:
    return {one.name: one.weight.rows_shape for one in find_linears(model)}


def test_all_layers_lose_channels_and_less_is_lost_than_without_a_fit(folder: Path) -> None:
    model, cut = dense_model(2), dense_model(2)
    options = {"multiple": 4, "target": "0.8x"}
    (record,) = Pipeline((pruning(folder, NAME, **options),)).run(model)
    facts, shapes = record.report.facts, widths(model)
    whole, size = facts["channels"]
    assert (whole, record.report.details["channels"]) == (D, D - size)
    assert size % 4 == 0
    assert shapes["l1.q"] == (64, size)
    assert shapes["l1.o"] == (size, 64)
    assert shapes["l0.up"] == (FF, size)
    assert shapes["l0.down"] == (size, FF)
    assert shapes["residual_to_head"] == (size, size)
    assert shapes["head"] == (V, size)
    assert 0.5 < facts["held"] < 1
    left = sum(rows * columns for rows, columns in shapes.values())
    assert left <= 0.8 * sum(rows * columns for rows, columns in widths(dense_model(2)).values())
    Pipeline((pruning(folder, NAME, refit=False, **options),)).run(cut)
    losses = [lost(one, dense_model(2)) for one in (model, cut)]
    assert losses[0] < 0.9 * losses[1]


def test_a_narrower_model_makes_a_ragged_step_with_its_heads_and_keys(folder: Path) -> None:
    model = models.dense_model(FAMILIES["llama"])
    one = pruning(folder, NAME, multiple=8, refit=False)
    Pipeline((one, KVCache())).run(model)
    shape = FAMILIES["llama"]
    assert {layer.kv_heads for layer in RaggedStep.of(model).kv.layers} == {shape.kv_heads}


@pytest.mark.parametrize("target", ["39K parameters", "150KB", "2250tok/s@0.9GB/s"])
def test_targets_are_met_by_the_most_channels_that_may_stay(folder: Path, target: str) -> None:
    model = dense_model(2)
    options = {"multiple": 4, "target": target, "refit": False}
    (record,) = Pipeline((pruning(folder, NAME, **options),)).run(model)
    size = record.report.facts["channels"][1]
    assert size < D
    with_more = dense_model(2)
    more = pruning(folder, NAME, multiple=4, target=f"{(size + 4) / D - 0.001}x", text="/nowhere")
    assert more.run_unread(with_more, ()).details["channels"] <= D - size + 4


def test_bytes_count_as_later_passes_store_weights(folder: Path) -> None:
    model, later = dense_model(1), QuantizeWeights(bits=8)
    one = pruning(folder, NAME, multiple=4, target="15KB", refit=False)
    Pipeline((one, later)).run(model)
    stored = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    assert stored <= 1.05 * 15e3 + 4 * V * D  # the table is float32 beside it


def test_a_part_of_the_model_is_cut_as_the_whole_was(folder: Path) -> None:
    """As the first layers of a self-draft are: nothing is measured again."""
    model, part = dense_model(2), dense_model(2)
    one = pruning(folder, NAME, multiple=4)
    Pipeline((one,)).run(model)
    part.graph.meta["optc.calibration"] = calibration_of(model)
    again = pruning(folder, NAME, multiple=4, text="/nowhere")
    details = again.run_before(part, ()).details
    assert set(details) == {"channels"}
    np.testing.assert_array_equal(logits(part), logits(model))


def test_a_calibration_is_found_again(folder: Path, tmp_path: Path) -> None:
    one = pruning(folder, NAME, multiple=4, cache=str(tmp_path / "cache"))
    first, again = dense_model(1), dense_model(1)
    reports = [Pipeline((one,)).run(model)[0].report for model in (first, again)]
    assert ["from_cache" in one.facts for one in reports] == [False, True]
    assert reports[0].details == reports[1].details
    np.testing.assert_array_equal(logits(first), logits(again))


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("gemma2", "what it adds to the residual stream is no linear layer's own"),
        ("stablelm", "a LayerNormalization reads the residual stream"),
        ("starcoder2", "a LayerNormalization reads the residual stream"),
    ],
)
def test_streams_that_cannot_be_turned_are_refused(family: str, reason: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        pruning(folder, NAME).run(models.dense_model(FAMILIES[family]))
    message = str(caught.value)
    start = f"{WHERE}: the residual stream cannot be made narrower (nearest miss: "
    assert message.startswith(start)
    assert reason in message
    assert message.endswith("(leave the pass out)")


def test_a_target_that_channels_cannot_meet_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"the target 100 parameters .* cannot be met"):
        pruning(folder, NAME, target="100 parameters").run(dense_model(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"target": "half"}, "'half' is no target"), ({"multiple": 0}, "multiple must be at least 1")],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PruneResidual.from_options(options)
