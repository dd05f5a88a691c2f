"""What groups lose in formats: against whole models with these weights, and against errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import as_lazy
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.gptq.factor import factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.budget import sensitivity as module
from optc.passes.quantize.budget.groups import Group, groups_of
from optc.passes.quantize.budget.sensitivity import Rated, Rater, note_hessians
from optc.passes.quantize.layer_schemes import PER_CHANNEL
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.calibration import calibration_of, find_statistics
from tests.support.dense_models import V

TOKENS = np.random.default_rng(0).integers(0, V, (3, 40), np.int32)
INT3, INT2 = (Scheme(bits, 32, symmetric=False, integer_scales=True) for bits in (3, 2))
FORMATS = (INT2, INT3, PER_CHANNEL)


def rater(model: ir.Model, *, gptq: bool) -> Rater:
    store = calibration_of(model)
    note_hessians(model, TOKENS, groups_of(model, head=True), store)
    return Rater(model, TOKENS, store, Factors(store) if gptq else None)


def rated(one: Rater, groups: Sequence[Group]) -> list[list[Rated]]:
    return one.rate(groups, [group.fitting(FORMATS) for group in groups])


def log_probabilities(model: ir.Model) -> np.ndarray:
    reference = BlockwiseReference(model, 1)
    hidden = reference.run(TOKENS)
    (tile,) = reference.tiles()
    z = reference.logits(hidden, tile).astype(np.float64)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("gptq", [False, True])
def test_a_group_loses_what_the_model_with_it_loses(model: ir.Model, gptq: bool) -> None:
    groups, one = groups_of(model, head=True), rater(model, gptq=gptq)
    group, found = groups[4], rated(one, groups)[4]
    assert [(r.scheme, r.measured) for r in found] == [
        (INT2, True),
        (INT3, True),
        (PER_CHANNEL, False),
    ]
    p = log_probabilities(model)
    for linear in group.linears:
        rows = np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)
        (hessian,) = find_statistics(one.store, linear, INPUT_HESSIAN)
        tile = gptq_rows(rows, factor_of(hessian, 32), INT3) if gptq else quantize_rows(rows, INT3)
        near = as_lazy(ir.tensor(dequantize_rows(tile, 32), name=linear.name))
        linear.initializer.const_value = near.transpose()
    q = log_probabilities(model)
    kl = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    assert kl > 1e-4
    assert found[1].kl == pytest.approx(kl, rel=1e-2)
    assert found[2].kl < found[1].kl / 100


def test_hessians_are_those_of_the_inputs(model: ir.Model) -> None:
    one = rater(model, gptq=False)
    head = groups_of(model, head=True)[-1]
    x = BlockwiseReference(model, 1).run(TOKENS).astype(np.float64)
    (found,) = find_statistics(one.store, head.linears[0], INPUT_HESSIAN)
    np.testing.assert_allclose(found, x.T @ x / len(x), rtol=1e-4, atol=1e-5)


def test_errors_are_of_the_layers_results(model: ir.Model) -> None:
    """With formats in proportion, unmeasured losses are, too: int8 follows the error."""
    one, groups = rater(model, gptq=False), groups_of(model, head=True)
    down = groups[3].linears[0]
    rows = np.asarray(down.weight.read_rows(0, 64), np.float64)
    (hessian,) = find_statistics(one.store, down, INPUT_HESSIAN)
    errors = []
    for scheme in (INT3, PER_CHANNEL):
        tile = quantize_rows(rows.astype(np.float32), scheme)
        lost = rows - dequantize_rows(tile, scheme.group_size)
        errors.append(float(np.trace(lost @ hessian @ lost.T)))
    int3, int8 = rated(one, groups)[3][1:]
    assert int8.kl / int3.kl == pytest.approx(errors[1] / errors[0], rel=1e-3)


def test_of_large_models_few_layers_are_measured(
    model: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MACS", 0.0)
    one, groups = rater(model, gptq=False), groups_of(model, head=True)
    found = rated(one, groups)
    assert [sum(r.measured for r in own) for own in found] == [1] * 9
    assert all(r.kl > 0 for own in found for r in own)
    exact = Rater(model, TOKENS, one.store, None).measure([{0: INT2}], groups)
    assert found[0][0].kl == pytest.approx(exact[0], rel=1.0)  # by its error and int3's ratio


def test_progress_is_told(model: ir.Model) -> None:
    from optc.system.progress import telling

    told: list[tuple[str, int, int]] = []
    one, groups = rater(model, gptq=False), groups_of(model, head=True)
    with telling(lambda *what: told.append(what)):
        one.measure([{0: INT3}], groups)
    assert told[-1] == ("sensitivity of weights", 5, 5)
