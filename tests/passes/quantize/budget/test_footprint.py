"""What a choice of formats does not change, against the bytes of the quantized model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import head_of
from optc.ir.weights import as_lazy
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.quantize.budget.footprint import footprint
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.layer_schemes import PER_CHANNEL
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.dense_models import HEAD, HKV, V


def floats(model: ir.Model) -> int:
    """Elements of initializers of no more than one dimension."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    return sum(t.size for t in tensors if t is not None and len(t.shape) < 2)


def test_a_tied_table_is_the_heads(model: ir.Model) -> None:
    groups = groups_of(model, head=True)
    found = footprint(model, groups, QuantizeWeights(), [KVCache(dtype="int8")])
    assert (found.fixed_bits, found.float_bits) == (0, 32 * floats(model))
    facts = QuantizeWeights().run(model).facts
    assert found.weights == facts["weights"]
    assert found.kv_bytes == 512 * 2 * HKV * (2 * HEAD + 8)


def test_an_untied_table_counts_as_it_is_quantized(model: ir.Model) -> None:
    head = head_of(model)
    assert head is not None
    other = as_lazy(ir.tensor(np.zeros((V, 64), np.float32), name="head"))
    head.initializer.const_value = other.transpose()
    groups = groups_of(model, head=True)
    found = footprint(model, groups, QuantizeWeights(), [])
    assert found.fixed_bits == V * (64 * 8 + 32)
    assert found.kv_bytes == 512 * 2 * HKV * 2 * HEAD * 4
    bits = sum(group.bits(PER_CHANNEL) for group in groups) + found.fixed_bits
    facts = QuantizeWeights().run(model).facts
    assert found.weights == facts["weights"]
    assert bits / found.weights == pytest.approx(facts["bits_per_weight"])


def test_what_stays_float_counts_as_floats(model: ir.Model) -> None:
    groups = groups_of(model, head=False)
    found = footprint(model, groups, QuantizeWeights(head=False), [])
    assert found.weights == sum(group.weights for group in groups)
    assert found.float_bits == 32 * (V * 64 + floats(model))
