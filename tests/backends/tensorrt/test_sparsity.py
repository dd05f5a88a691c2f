"""Weights that are pruned 2:4 are told from dense ones, in every type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tensorrt.sparsity import pruned_weights
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.weights import as_lazy
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.dense_models import dense_model

BODY = ("q", "k", "v", "o", "gate", "up", "down")


def pruned(*later: Pass, **options: object) -> ir.Model:
    model = dense_model(1)
    prune = PruneWeights(method="magnitude", **options)  # type: ignore[arg-type]
    Pipeline((prune, *later)).run(model)
    return model


def test_a_pattern_is_found_in_floats_and_integers() -> None:
    names = {f"l0.{part}" for part in BODY}
    assert set(pruned_weights(pruned(pattern="2:4"))) == names
    found = pruned_weights(pruned(QuantizeWeights(), pattern="2:4"))
    assert set(found) == {f"{name}.quantized" for name in names}
    int4 = QuantizeWeights(bits=4, group_size=32, head_bits=4)
    assert "l0.o.quantized" in pruned_weights(pruned(int4, pattern="2:4"))


@pytest.mark.parametrize("options", [{"sparsity": 0.5}, {"pattern": "4:8"}])
def test_other_zeros_are_no_pattern(options: dict[str, object]) -> None:
    assert pruned_weights(pruned(**options)) == []
    assert pruned_weights(dense_model(1)) == []


def test_weights_of_zeros_alone_are_none() -> None:
    model = dense_model(1)
    value = next(one for name, one in model.graph.initializers.items() if name == "l0.q")
    assert value.const_value is not None
    shape = value.const_value.shape.numpy()[::-1]
    zeros = ir.tensor(np.zeros(shape, np.float32), name="l0.q")
    value.const_value = as_lazy(zeros).transpose()
    assert pruned_weights(model) == []
