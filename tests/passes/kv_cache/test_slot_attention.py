"""Paged attention taken apart, and as attention over slots."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.kv_cache.slot_attention import add_slots, unmerged
from tests.support.families import FUSED, model_after
from tests.support.models import Dense
from tests.support.ragged import RaggedDriver

SHAPE = Dense(qk_norm=True, kv_heads=1, heads=3, windows=(5, 0))


def attentions(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == op_type]


@pytest.mark.parametrize(
    ("shape", "prepared"),
    [
        (SHAPE, {"HeadRMSNorm": 4, "RotaryEmbedding": 4}),
        (Dense(), {"HeadRMSNorm": 0, "RotaryEmbedding": 4}),
        (Dense(rotary_dim=0), {"HeadRMSNorm": 0, "RotaryEmbedding": 0}),
    ],
    ids=["head norms", "rotary", "plain"],
)
def test_taken_apart_it_computes_the_same(shape: Dense, prepared: dict[str, int]) -> None:
    tokens = list(range(12))
    model = model_after(FUSED, shape)
    want = RaggedDriver(model_after(FUSED, shape)).step({0: tokens})
    for node in attentions(model, "RotaryPagedAttention"):
        paged = unmerged(model, node)
        assert paged.op_type == "PagedAttention"
    assert not attentions(model, "RotaryPagedAttention")
    assert {name: len(attentions(model, name)) for name in prepared} == prepared
    np.testing.assert_allclose(RaggedDriver(model).step({0: tokens}), want, rtol=1e-4, atol=1e-5)


def test_pools_become_slots_of_the_graph() -> None:
    model = model_after("kv-cache", Dense(heads=2, kv_heads=2, windows=(6,)))
    (node,) = attentions(model, "PagedAttention")
    writes = ir.Value(name="write_indices", type=ir.TensorType(ir.DataType.INT64))
    add_slots(model, node, writes)
    (slots,) = attentions(model, "SlotAttention")
    pasts = [(value.name, list(value.shape or ())) for value in model.graph.inputs[-2:]]
    assert pasts == [(f"past_{kind}.0", ["B", 2, "Smax", 8]) for kind in "kv"]
    assert list(slots.inputs[3:]) == [*model.graph.inputs[-2:], writes]
    outputs = [(value.name, list(value.shape or ())) for value in slots.outputs[1:]]
    assert outputs == [(f"present_{kind}.0", ["B", 2, "Smax", 8]) for kind in "kv"]
    assert slots.attributes["window"].as_int() == 6


def test_a_pool_without_a_shape_is_refused() -> None:
    model = model_after("kv-cache", Dense(windows=(0,)))
    (node,) = attentions(model, "PagedAttention")
    pool = node.inputs[3]
    assert pool is not None
    pool.shape = None
    with pytest.raises(ValueError, match="the pool of a paged attention has no shape"):
        add_slots(model, node, ir.Value(name="write_indices"))
