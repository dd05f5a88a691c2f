"""`quantize-weights` by GPTQ in a pipeline: what it reads, what it gives, and what it lacks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import Linear, find_linear
from optc.ir.quantized_rows import QuantizedPart
from optc.passes.numerics.gptq import weights as module
from optc.passes.numerics.gptq.factor import Factor, factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import CalibrationStore, calibration_of, weights_of
from tests.passes.numerics.gptq.test_rows import correlated, weight
from tests.support.ir_text import f32, model_of, nodes_text

NODES = """
    t = Tanh (x)
    a = MatMul (t, wa)
    y = MatMul (a, head)"""
WEIGHTS = {"wa": f32(64, 96), "head": f32(96, 10, seed=1)}
INT4 = {"bits": 4, "group_size": 32, "symmetric": False}


def model() -> ir.Model:
    return model_of("g (float[S,64] x) => (float[S,10] y)", NODES, WEIGHTS)


def linears(of: ir.Model) -> list[Linear]:
    return [linear for node in of.graph if (linear := find_linear(node)) is not None]


def calibrated(of: ir.Model) -> dict[str, np.ndarray]:
    """Gives the layers Hessians of random inputs."""
    hessians = {}
    for seed, linear in enumerate(linears(of)):
        name = linear.name
        hessians[name] = correlated(linear.weight.rows_shape[1], seed)
        calibration_of(of).put(weights_of(linear), INPUT_HESSIAN, hessians[name])
    return hessians


def test_the_graph_is_that_of_plain_rounding_and_the_values_are_gptqs() -> None:
    plain, mine = model(), model()
    hessians = calibrated(mine)
    QuantizeWeights(**INT4).run(plain)
    report = QuantizeWeights(**INT4, method="gptq").run(mine)
    assert nodes_text(mine) == nodes_text(plain)
    assert report.details == {"int4 groups of 32 asymmetric, gptq": 1, "int8 per channel, gptq": 1}
    for name, scheme in (("wa", Scheme(4, 32, False)), ("head", Scheme(8, 0, True))):
        part = mine.graph.initializers[f"{name}.quantized"].const_value
        assert isinstance(part, QuantizedPart)
        rows = WEIGHTS[name].T.astype(np.float32)
        expected = gptq_rows(rows, factor_of(hessians[name], scheme.group_size), scheme)
        for found, wanted in zip(part.whole.read(0, len(rows)), expected, strict=True):
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None:
                np.testing.assert_array_equal(found, wanted)
        other = plain.graph.initializers[f"{name}.quantized"].const_value
        assert isinstance(other, QuantizedPart)
        assert (other.whole.read(0, len(rows)).values != expected.values).any()


def test_without_hessians_it_says_what_has_to_come_before() -> None:
    with pytest.raises(InputError) as caught:
        QuantizeWeights(**INT4, method="gptq").run(model())
    assert str(caught.value) == (
        "pass quantize-weights, wa: nothing is known of its inputs "
        "(put propagate-errors before it, and give a --calibration text)"
    )


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match=r"method.*round.*gptq"):
        QuantizeWeights(method="awq")


def test_factors_are_computed_once_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[str, int]] = []

    def noted(hessian: np.ndarray, group_size: int, name: str) -> Factor:
        made.append((name, group_size))
        return factor_of(hessian, group_size, name)

    monkeypatch.setattr(module, "factor_of", noted)
    graph = model()
    calibrated(graph)
    factors = Factors(calibration_of(graph))
    first, second = (factors.rounder(linear, linear.name) for linear in linears(graph))
    scheme = Scheme(4, 32, False)
    for rounder, columns in ((first, 64), (second, 96), (first, 64), (first, 64)):
        rounder(weight(3, columns), scheme, "w")
    assert made == [("wa", 32), ("head", 32)]
    first(weight(3, 64), Scheme(8, 0, True), "w")  # a third: head's goes
    first(weight(3, 64), scheme, "w")
    second(weight(3, 96), scheme, "w")
    assert made == [("wa", 32), ("head", 32), ("wa", 0), ("head", 32)]


def test_statistics_on_disk_are_read() -> None:
    graph = model()
    linear = linears(graph)[0]
    store = CalibrationStore(memory_bytes=0)
    store.put(weights_of(linear), INPUT_HESSIAN, correlated(64))
    rounder = Factors(store).rounder(linear, "wa")
    w, scheme = weight(3, 64), Scheme(4, 32, False)
    expected = gptq_rows(w, factor_of(correlated(64), 32), scheme)
    np.testing.assert_array_equal(rounder(w, scheme, "wa").values, expected.values)
