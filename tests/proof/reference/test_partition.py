"""Where a model is cut, by dataflow."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.proof.reference.partition import is_constant, mixes_tokens, partition
from tests.support.families import FAMILIES
from tests.support.models import Dense, dense_model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_holds_one_mixer_and_starts_where_the_last_ended(family: str) -> None:
    shape = FAMILIES[family]
    parts = partition(dense_model(shape))
    mixers = [1] * shape.layers  # and the convolution in front of a delta rule
    for index, kind in enumerate(shape.recurrences):
        mixers[index] += kind == "delta"
    assert [sum(map(mixes_tokens, block.nodes)) for block in parts.blocks] == mixers
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


def test_keys_that_a_later_layer_shares_are_carried_over_the_cut() -> None:
    parts = partition(dense_model(FAMILIES["shared keys"]))
    first, second, third = parts.blocks
    assert first.carried == first.passed == ()
    attention = next(node for node in third.nodes if mixes_tokens(node))
    assert set(second.passed) == set(third.carried) == set(attention.inputs[1:3])
    assert third.passed == ()
    assert third.given == (third.source, *third.carried)
    assert second.gives == (second.result, *third.carried)


def test_embeddings_of_layers_are_carried_as_far_as_layers_read_them() -> None:
    parts = partition(dense_model(FAMILIES["embeddings of layers"]))
    first, second = parts.blocks
    table = next(v for v in parts.tables if v is not parts.embedding)
    assert [value.name for value in parts.tables] == ["embed.weight", "layers.weight"]
    lookups = [value.producer() for value in first.given]
    assert [node and node.inputs[0] for node in lookups] == [parts.embedding, table]
    (own,) = second.carried
    assert own.producer() in first.nodes
    assert first.passed == second.carried
    assert second.passed == ()


def test_a_carried_value_has_a_row_of_numbers_for_each_token() -> None:
    model = dense_model(FAMILIES["shared keys"])
    keys = next(node for node in reversed(model.graph) if mixes_tokens(node)).inputs[1]
    assert keys is not None
    keys.dtype = ir.DataType.INT64
    with pytest.raises(UnsupportedError, match="is no row of numbers of each token"):
        partition(model)
