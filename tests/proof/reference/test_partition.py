"""Where a model is cut, by dataflow."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.proof.reference.partition import is_attention, is_constant, partition
from tests.support.families import FAMILIES
from tests.support.models import Dense, dense_model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_holds_one_attention_and_starts_where_the_last_ended(family: str) -> None:
    shape = FAMILIES[family]
    parts = partition(dense_model(shape))
    assert [sum(map(is_attention, block.nodes)) for block in parts.blocks] == [1] * shape.layers
    cuts = [parts.embedded, *(block.result for block in parts.blocks)]
    assert [block.source for block in parts.blocks] == cuts[:-1]
    assert cuts[-1] is parts.head.inputs[0]
    assert len(parts.shared) == (2 if shape.rotary_dim else 0), "cos and sin"


def test_the_pieces_are_all_nodes_but_the_embedding_once_each() -> None:
    model = dense_model(Dense(logit_softcap=2.0, qk_norm=True))
    parts = partition(model)
    found = [*parts.position_nodes, parts.head, *parts.tail_nodes]
    found += [node for block in parts.blocks for node in block.nodes]
    lookup = parts.embedded.producer()
    assert lookup is not None
    assert lookup.inputs[0] is parts.embedding
    assert {lookup, *found} == set(model.graph)
    assert len(found) + 1 == model.graph.num_nodes()
    assert [node.op_type for node in parts.tail_nodes] == ["Div", "Tanh", "Mul"]


def test_a_constant_depends_on_no_input() -> None:
    model = dense_model(Dense())
    parts = partition(model)
    assert is_constant(parts.embedding)
    assert not is_constant(parts.embedded)
    assert not is_constant(model.graph.inputs[0])
    weight = parts.head.inputs[1]
    transposed = ir.node("Transpose", [weight])
    model.graph.append(transposed)
    assert is_constant(transposed.outputs[0])
