"""KL of variants, against whole models with these weights in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear, find_linears
from optc.ir.weights import LazyWeight, as_lazy
from optc.proof.reference.submodel import open_session
from optc.proof.reference.variants import measure
from optc.proof.reference.variants.measure import Variant, measure_variants
from tests.support import dense_models
from tests.support.dense_models import V, dense_model

TOKENS = np.random.default_rng(0).integers(0, V, (3, 40), np.int32)


def changed(linear: Linear, scale: float, seed: int) -> LazyWeight:
    rows = np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]))
    noise = np.random.default_rng(seed).standard_normal(rows.shape) * scale / np.sqrt(rows.shape[1])
    return as_lazy(ir.tensor((rows + noise).astype(np.float32), name=linear.name))


def log_probabilities(model: ir.Model) -> np.ndarray:
    positions = np.tile(np.arange(TOKENS.shape[1]), (len(TOKENS), 1))
    feeds = {"input_ids": TOKENS.astype(np.int64), "position_ids": positions}
    z = open_session(model, 1).run(None, feeds)[0].astype(np.float64)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def expected(
    build: Callable[[], ir.Model], weights: dict[str, LazyWeight], apart: int = 1
) -> float:
    """The KL of a whole model with these weights, of each row or of some that are so far apart; the
    head's rows are the embedding's, too."""
    original, other = build(), build()
    for name, weight in weights.items():
        other.graph.initializers[name].const_value = weight.transpose()
        if name == "head":
            other.graph.initializers["embedding"].const_value = weight
    p, q = log_probabilities(original), log_probabilities(other)
    return float((np.exp(p) * (p - q)).sum(axis=-1).ravel()[::apart].mean())


def variants_of(model: ir.Model) -> tuple[list[Variant], list[dict[str, LazyWeight]]]:
    """Single layers from first to last, the head, two layers of different blocks, and all."""
    linears = {linear.name: linear for linear in find_linears(model)}
    groups = [["l0.q", "l0.k"], ["l1.down"], ["l2.o"], ["head"], ["l0.up", "l2.gate"], [*linears]]
    by_name = [
        {name: changed(linears[name], 0.1, seed) for seed, name in enumerate(group)}
        for group in groups
    ]
    return [{linears[n].initializer: w for n, w in one.items()} for one in by_name], by_name


@pytest.mark.parametrize("options", [{}, {"bias": True, "softcap": 8.0, "window": 7}])
@pytest.mark.parametrize("in_a_file", [False, True])
def test_each_is_that_of_the_whole_model(
    options: dict[str, float], in_a_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.proof.reference.running.head.VOCAB_TILE", 40)
    monkeypatch.setattr(measure, "BLOCK_ROWS", 80)  # two windows, then one
    monkeypatch.setattr(measure, "_ROWS", 33)
    if in_a_file:
        monkeypatch.setattr(measure, "HIDDEN_BYTES", 1000)

    def build() -> ir.Model:
        return dense_model(3, **options)

    model = build()
    variants, by_name = variants_of(model)
    found = measure_variants(model, TOKENS, variants, 1)
    wanted = [expected(build, weights) for weights in by_name]
    assert min(wanted) > 1e-5
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


@pytest.mark.parametrize(("head_cost", "apart"), [(0, 1), (26, 1), (27, 2), (45, 3), (9999, 4)])
def test_a_head_that_is_larger_than_the_layers_is_evaluated_for_some_rows(
    head_cost: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_HEAD_COST", head_cost)

    def build() -> ir.Model:
        return dense_model(3)

    model = build()
    variants, by_name = variants_of(model)
    found = measure_variants(model, TOKENS, variants[:3], 1)
    wanted = [expected(build, weights, apart) for weights in by_name[:3]]
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_only_blocks_behind_a_change_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, told = [], list[tuple[int, int]]()
    original = measure.BlockRun.run

    def counted(self: measure.BlockRun, hidden: np.ndarray) -> object:
        runs.append(self)
        return original(self, hidden)

    monkeypatch.setattr(measure.BlockRun, "run", counted)
    model = dense_model(3)
    variants, _ = variants_of(model)
    measure_variants(model, TOKENS, variants, 1, lambda done, total: told.append((done, total)))
    # q and k 3, down 2, o 1, head (tied) 3, up and gate 3, all 3, and the model itself 3
    assert len(runs) == 18
    assert len({id(run) for run in runs}) == 3
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (18 + 6, 18 + 6)


def test_an_untied_head_starts_behind_the_blocks() -> None:
    builder = dense_models.dense_builder(2)
    model, head = builder.model, find_linears(builder.model)[-1]
    own = as_lazy(ir.tensor(np.eye(V, dense_models.D, dtype=np.float32), name="head"))
    head.initializer.const_value = own.transpose()
    weight = changed(find_linears(model)[-1], 0.2, 0)
    (found,) = measure_variants(model, TOKENS, [{head.initializer: weight}], 1)
    p = log_probabilities(model)
    head.initializer.const_value = weight.transpose()
    q = log_probabilities(model)
    assert found == pytest.approx(float((np.exp(p) * (p - q)).sum(axis=-1).mean()), rel=2e-3)
