"""Units of channels by gradients: sums against NumPy, and what goes by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.passes.prune.structured import taylor
from optc.passes.prune.structured.channels import KV_GROUPS, NEURONS, Channels, find_channels
from optc.passes.prune.structured.cut import cut_channels, given_rows
from optc.passes.prune.structured.taylor import Gradients, gradients_bytes, most_important
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.pipeline.base import PassReport
from optc.pipeline.pipeline import Pipeline
from optc.training import gradients as backward
from optc.training.gradients import run_backward
from optc.training.memory import backward_bytes
from tests.passes.prune.structured.on_letters import hidden, pruning
from tests.support.dense_models import FF, D, V, dense_model
from tests.support.letters import letters_folder

TOKENS = np.random.default_rng(3).integers(0, V, (3, 20), np.int32)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PyTorch: threads that wait for each other cost a small model most of the time."""
    monkeypatch.setattr(taylor, "usable_threads", lambda: 1)


def channels(model: ir.Model, kind: str) -> list[Channels]:
    return find_channels(model, kind, PassReport())


@pytest.mark.parametrize(("kind", "units"), [(NEURONS, FF), (KV_GROUPS, 2)])
def test_estimates_are_half_the_mean_square_of_what_a_token_changes_the_loss_by(
    kind: str, units: int
) -> None:
    model = dense_model(2)
    found, squares = channels(model, kind), {}

    def keep(window: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        for name, (values, gradients) in window.items():
            for token in range(len(values)):
                parts = np.split(np.float64(values[token]) * gradients[token], units)
                squares.setdefault(name, []).append([part.sum() ** 2 for part in parts])

    run_backward(model, TOKENS, {str(one.x.name) for one in found}, 1, keep)  # type: ignore[arg-type]
    told = Gradients(model, TOKENS, found, fisher=False)
    for one in found:
        expected = np.mean(squares[one.x.name], axis=0) / 2
        np.testing.assert_allclose(told.estimates(one), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="no gradients were summed"):
        told.metric(found[0].x)


def test_a_metric_weighs_changes_of_results_by_their_gradients() -> None:
    model = dense_model(2)
    found = channels(model, NEURONS)
    (linear,) = found[1].linears
    gradients: list[np.ndarray] = []
    name = str(linear.output.name)
    run_backward(model, TOKENS, {name}, 1, lambda window: gradients.append(window[name][1]))
    fisher = np.concatenate(gradients).astype(np.float64)
    fisher = fisher.T @ fisher / len(fisher)
    damped = fisher + 0.01 * np.trace(fisher) / D * np.eye(D)
    metric = Gradients(model, TOKENS, found, fisher=True).metric(linear.output)
    np.testing.assert_allclose(metric.T @ metric, damped, rtol=1e-4, atol=1e-6 * damped.max())


def test_units_that_cost_most_stay() -> None:
    np.testing.assert_array_equal(most_important(np.array([3.0, 0, 2, 2, 5]), 3), [0, 2, 4])


def unheard(model: ir.Model, kept: int) -> None:
    """The last layer's MLP writes along one direction; all but ``kept`` neurons write along
    another, twice as loud, that the scale of the last norm lets nothing hear of."""
    (linear,) = channels(model, NEURONS)[-1].linears
    rows = np.zeros((D, FF), np.float32)
    rows[0, :kept], rows[1, kept:] = 0.01, 0.02
    linear.initializer.const_value = given_rows(linear.weight, rows)
    scale = model.graph.initializers["norm"]
    values = scale.const_value.numpy().copy()  # type: ignore[union-attr]
    values[1] = 0
    scale.const_value = ir.tensor(values, name="norm")


@pytest.mark.parametrize("refit", [False, True])
def test_neurons_that_the_loss_does_not_hear_of_go_first(tmp_path: Path, refit: bool) -> None:
    """By activations the loud ones stay; of 80 neurons 40 go."""
    folder, gone = letters_folder(tmp_path), {}
    for choose in ("activations", "taylor"):
        model = dense_model(1)
        unheard(model, 40)
        options = {"multiple": 4, "target": "0.5x", "windows": 8, "refit": refit}
        Pipeline((pruning(folder, "prune-width", choose=choose, **options),)).run(model)
        (linear,) = channels(model, NEURONS)[-1].linears
        rows = linear.weight.read_rows(0, D)
        gone[choose] = 40 - int((np.abs(rows[0]) > np.abs(rows[1])).sum())
    assert gone["taylor"] < 16
    assert gone["activations"] > 32


def test_the_head_of_the_least_estimate_goes(tmp_path: Path) -> None:
    folder, model, expected = letters_folder(tmp_path), dense_model(2), dense_model(2)
    one = pruning(folder, "prune-heads", target="0.75x", choose="taylor", refit=False, windows=4)
    found = channels(expected, KV_GROUPS)
    told = Gradients(expected, one.tokens(expected), found, fisher=False)  # type: ignore[attr-defined]
    costs = {(i, unit): told.estimates(found[i])[unit] for i in (0, 1) for unit in (0, 1)}
    layer, unit = min(costs, key=lambda place: costs[place])
    cut_channels(expected, found[layer], np.array([1 - unit]))
    (record,) = Pipeline((one,)).run(model)
    np.testing.assert_array_equal(hidden(model), hidden(expected))
    (step,) = record.report.facts["steps"]
    assert step["taken"] == [[found[layer].name, unit]]
    told_costs = {(name, at): cost for name, at, cost in step["kl"]}
    for (i, at), cost in costs.items():
        assert told_costs[found[i].name, at] == pytest.approx(cost, rel=1e-3)


def test_memory_grows_with_weights_and_the_window() -> None:
    small, large = dense_model(1), dense_model(3)
    sizes = [gradients_bytes(m, TextShape(2, 64), channels(m, NEURONS)) for m in (small, large)]
    weights = 2 * (3 * D * FF + 2 * D * 64 + 2 * D * 32)
    assert sizes[1] - sizes[0] > 4 * (weights + 2 * D * D)
    longer = gradients_bytes(small, TextShape(2, 128), channels(small, NEURONS))
    assert longer > sizes[0] + 4 * 64 * D
    assert gradients_bytes(small, TextShape(9, 64), channels(small, NEURONS)) == sizes[0]


def test_memory_is_what_a_backward_pass_takes_and_the_sums() -> None:
    """PyTorch is there before it, and what the pass frees it gives back before the next window."""
    model = dense_model(2)
    sums = 4 * 2 * D * D  # of what each MLP gives
    taken = gradients_bytes(model, TextShape(2, 64), channels(model, NEURONS))
    assert taken == backward_bytes(model, 64) + sums


def test_freed_memory_goes_back_after_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(backward, "give_back_freed", lambda: given.append("window"))
    monkeypatch.setattr(taylor, "give_back_freed", lambda: given.append("all"))
    model = dense_model(1)
    Gradients(model, TOKENS, channels(model, NEURONS), fisher=False)
    assert given == ["window"] * len(TOKENS) + ["all"]


@pytest.mark.parametrize("name", ["prune-width", "prune-heads"])
def test_another_choice_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="choose=loud is not possible"):
        pruning(tmp_path, name, choose="loud")
