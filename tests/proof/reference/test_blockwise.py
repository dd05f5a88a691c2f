"""The blockwise reference equals the whole model run at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.errors import UnsupportedError
from optc.proof.reference import blockwise as reference_module
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.partition import mixes_tokens, partition
from optc.proof.reference.running import head
from tests.support.dense_models import D, V, dense_builder, dense_model


def whole_logits(model: ir.Model, tokens: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    positions = np.tile(np.arange(tokens.shape[1], dtype=np.int64), (len(tokens), 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    return session.run(None, feeds)[0]


def blockwise_logits(reference: BlockwiseReference, tokens: np.ndarray) -> np.ndarray:
    hidden = reference.hidden_states(tokens)
    tiles = [reference.logits(hidden, tile) for tile in reference.tiles()]
    return np.concatenate(tiles, axis=1).reshape(*tokens.shape, -1)


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, V, (5, 12), np.int32)


@pytest.mark.parametrize(
    "options", [{}, {"softcap": 3.0, "bias": True}, {"window": 4}, {"layers": 1}], ids=str
)
def test_equals_the_whole_model(options, tokens, monkeypatch) -> None:
    monkeypatch.setattr(head, "VOCAB_TILE", 40)
    monkeypatch.setattr(reference_module, "BLOCK_ROWS", 24)
    model = dense_model(**options)
    expected = whole_logits(model, tokens)
    actual = blockwise_logits(BlockwiseReference(model, 1), tokens)
    np.testing.assert_allclose(actual, expected, atol=2e-5)
    assert np.ptp(expected) > 1


def test_one_block_a_layer(tokens) -> None:
    parts = partition(dense_model(4))
    assert [sum(map(mixes_tokens, block.nodes)) for block in parts.blocks] == [1, 1, 1, 1]
    assert parts.blocks[-1].result is parts.head.inputs[0]
    assert len(parts.shared) == 2  # cos and sin
    reference = BlockwiseReference(dense_model(4), 1)
    seen: list[tuple[int, int]] = []
    reference.hidden_states(tokens, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_states_of_some_windows_are_taken_from_those_of_all(tokens, monkeypatch) -> None:
    reference = BlockwiseReference(dense_model(2), 1)
    whole = reference.hidden_states(tokens).reshape(*tokens.shape, -1).copy()
    monkeypatch.setattr(reference, "run", None)  # nothing runs any more
    for rows in ([0, 1, 2, 3, 4], [3], [4, 0]):
        found = reference.hidden_states(tokens[rows])
        assert np.array_equal(found.reshape(len(rows), tokens.shape[1], -1), whole[rows])


def test_other_windows_are_run(tokens) -> None:
    reference = BlockwiseReference(dense_model(2), 1)
    reference.hidden_states(tokens)
    for other in (tokens[:, :7], tokens[:, ::-1], tokens + 1):
        found = reference.hidden_states(other)
        fresh = BlockwiseReference(dense_model(2), 1)
        assert np.array_equal(found, fresh.hidden_states(other))


def test_reads_only_the_embedding_rows_of_the_tokens_and_the_head_by_tiles(monkeypatch) -> None:
    monkeypatch.setattr(head, "VOCAB_TILE", 32)
    builder = dense_builder(2)
    reference = BlockwiseReference(builder.model, 1)
    builder.reads.clear()
    hidden = reference.hidden_states(np.array([[5, 9, 5]], np.int32))
    assert [r for r in builder.reads if r[0] == "embedding"] == [
        ("embedding", 5, 6),
        ("embedding", 9, 10),
    ]
    layers = [name.split(".")[0] for name, _, _ in builder.reads if name != "embedding"]
    assert layers == sorted(layers)  # one layer is done before the next is read
    assert len(layers) == 14
    builder.reads.clear()
    assert hidden.shape == (3, D)
    assert sum(1 for _ in reference.tiles()) == 4
    assert builder.reads == [("embedding", s, min(s + 32, V)) for s in range(0, V, 32)]


def test_hidden_states_beyond_the_limit_go_to_a_file(tokens, monkeypatch) -> None:
    model = dense_model(2)
    in_memory = BlockwiseReference(model, 1).hidden_states(tokens)
    monkeypatch.setattr(reference_module, "HIDDEN_BYTES", 100)
    reference = BlockwiseReference(model, 1)
    mapped = reference.hidden_states(tokens)
    assert isinstance(mapped.base, np.memmap)
    np.testing.assert_array_equal(mapped, in_memory)
    reference.close()


def test_nodes_out_of_the_traced_order_are_cut_alike(tokens) -> None:
    model = dense_model(3)
    nodes = list(model.graph)
    cosine = next(n for n in nodes if n.op_type == "Cos")
    late = next(n for n in nodes if n.op_type == "RotaryEmbedding")
    model.graph.remove(cosine)
    late.prepend(cosine)
    expected = whole_logits(model, tokens)
    actual = blockwise_logits(BlockwiseReference(model, 1), tokens)
    np.testing.assert_allclose(actual, expected, atol=2e-5)


def test_a_second_way_to_the_logits_is_refused() -> None:
    model = dense_model(1)
    logits = model.graph.outputs[0]
    head = logits.producer()
    assert head is not None
    add = ir.node("Add", [logits, logits])
    add.replace_input_with(1, ir.node("MatMul", head.inputs).outputs[0])
    second = add.inputs[1].producer()
    model.graph.extend([second, add])
    model.graph.outputs[0] = add.outputs[0]
    with pytest.raises(UnsupportedError, match="not every path to the logits goes through"):
        BlockwiseReference(model, 1)


def test_tokens_that_enter_twice_are_refused() -> None:
    model = dense_model(1)
    model.graph.append(ir.node("Cast", [model.graph.inputs[0]], {"to": 1}))
    with pytest.raises(UnsupportedError, match=r"on embeddings alone, found Gather .*Cast"):
        BlockwiseReference(model, 1)


def test_logits_without_a_head_are_refused() -> None:
    model = dense_model(1)
    softmax = ir.node("Softmax", [model.graph.outputs[0]])
    model.graph.append(softmax)
    model.graph.outputs[0] = softmax.outputs[0]
    with pytest.raises(UnsupportedError, match="one MatMul on an initializer"):
        BlockwiseReference(model, 1)


def test_freed_memory_goes_back_after_each_block(tokens, monkeypatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(reference_module, "give_back_freed", lambda: given.append(1))
    BlockwiseReference(dense_model(3), 1).hidden_states(tokens)
    assert len(given) == 3
