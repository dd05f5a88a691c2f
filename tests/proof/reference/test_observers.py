"""Observers see what the whole model computes, and what they rewrite is what later blocks see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.ir.linear import find_linear
from optc.proof.reference import blockwise as blockwise_module
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.observers import BlockValues, Watcher, linears_of
from optc.proof.reference.partition import Block
from optc.proof.reference.submodel import Array
from tests.support.dense_models import V, dense_model

WINDOWS, SIZE = 5, 12


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows a chunk, the last chunk with one."""
    monkeypatch.setattr(blockwise_module, "BLOCK_ROWS", 2 * SIZE)


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, V, (WINDOWS, SIZE), np.int32)


def whole_values(model: ir.Model, names: Sequence[str], tokens: np.ndarray) -> dict[str, Array]:
    """Values of the uncut model by name, by one run of ONNX Runtime."""
    whole = model.clone()
    by_name = {str(v.name): v for node in whole.graph for v in node.outputs}
    whole.graph.outputs[:] = [by_name[name] for name in names]
    session = ort.InferenceSession(ir.to_proto(whole).SerializeToString())
    positions = np.tile(np.arange(tokens.shape[1], dtype=np.int64), (len(tokens), 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    return dict(zip(names, session.run(None, feeds), strict=True))


class Recorder(Watcher):
    """Keeps the inputs of all linear layers, the source and the result of every block."""

    def __init__(self) -> None:
        self.values: dict[str, list[Array]] = {}
        self.original: dict[str, list[Array]] = {}
        self.chunks: list[tuple[int, int]] = []
        self.results: set[ir.Value] = set()

    def watched(self, block: Block) -> Sequence[ir.Value]:
        inner = [linear.x for linear in linears_of(block)]
        return list(dict.fromkeys([block.source, *inner, block.result]))

    def on_values(self, seen: BlockValues) -> None:
        self.chunks.append((seen.windows.start, seen.windows.stop))
        for kept, values in ((self.values, seen.values), (self.original, seen.original)):
            for value, array in values.items():
                if value is not seen.block.source or value not in self.results:
                    kept.setdefault(str(value.name), []).append(array.copy())
            self.results.add(seen.block.result)

    def joined(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """All chunks [W, S, …] by name: with rewrites, and original."""
        values, original = (
            {name: np.concatenate(parts) for name, parts in kept.items()}
            for kept in (self.values, self.original)
        )
        return values, original


class Halver(Watcher):
    """Halves the weights of each block's last linear layer."""

    def watched(self, block: Block) -> Sequence[ir.Value]:
        return []

    def on_values(self, seen: BlockValues) -> None:
        assert not seen.values

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        last = linears_of(block)[-1]
        rows = last.weight.read_rows(0, last.weight.rows_shape[0])
        return {last.initializer: rows * np.float32(0.5)}


def halved(model: ir.Model) -> ir.Model:
    """The model with every down-projection halved, by changing its initializers."""
    changed = model.clone()
    for node in changed.graph:
        linear = find_linear(node)
        if linear is not None and linear.name.endswith(".down"):
            array = linear.initializer.const_value.numpy() * np.float32(0.5)
            linear.initializer.const_value = ir.Tensor(array, name=linear.name)
    return changed


def test_an_observer_sees_the_values_of_the_whole_model(tokens: np.ndarray) -> None:
    model, recorder = dense_model(2, window=4), Recorder()
    BlockwiseReference(model, 1).run(tokens, [recorder])
    values, original = recorder.joined()
    want = whole_values(model, list(values), tokens)
    assert {"l0.q", "l1.down"} <= {one.name for one in map(find_linear, model.graph) if one}
    assert len(values) == 2 * 5 + 1  # four inputs and the source a block, and the last result
    for name, array in values.items():
        np.testing.assert_allclose(array, want[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(original[name], array)


def test_chunks_cover_every_window_once_in_every_block(tokens: np.ndarray) -> None:
    recorder = Recorder()
    BlockwiseReference(dense_model(2), 1).run(tokens, [recorder])
    blocks = len(recorder.chunks) // 3
    assert recorder.chunks == [(0, 2), (2, 4), (4, 5)] * blocks
    assert blocks >= 2


def test_watching_changes_no_result(tokens: np.ndarray) -> None:
    model = dense_model(3)
    plain = BlockwiseReference(model, 1).run(tokens)
    for keep_original in (False, True):
        watched = BlockwiseReference(model, 1).run(
            tokens, [Recorder(), Recorder()], keep_original=keep_original
        )
        np.testing.assert_array_equal(watched, plain)


def test_later_blocks_see_what_was_rewritten(tokens: np.ndarray) -> None:
    model, recorder = dense_model(2), Recorder()
    hidden = BlockwiseReference(model, 1).run(tokens, [Halver(), recorder], keep_original=True)
    values, original = recorder.joined()
    names = list(values)
    before, after = (whole_values(m, names, tokens) for m in (model, halved(model)))
    second = find_linear(next(n for n in model.graph if _reads(n, "l1.q"))).x.name
    np.testing.assert_allclose(values[second], after[second], rtol=1e-4, atol=1e-5)
    assert np.abs(before[second] - after[second]).max() > 1e-2
    for name, array in original.items():
        np.testing.assert_allclose(array, before[name], rtol=1e-4, atol=1e-5)
    head = BlockwiseReference(halved(model), 1).run(tokens)
    np.testing.assert_allclose(hidden, head, rtol=1e-4, atol=1e-5)


def _reads(node: ir.Node, weight: str) -> bool:
    return any(v is not None and v.name == weight for v in node.inputs)


def test_the_model_itself_stays_as_it_was(tokens: np.ndarray) -> None:
    model = dense_model(2)
    plain = BlockwiseReference(model, 1).run(tokens)
    reference = BlockwiseReference(model, 1)
    reference.run(tokens, [Halver()])
    np.testing.assert_array_equal(reference.hidden_states(tokens), plain)


class Wrong(Halver):
    """Gives what is not the block's to change, or in another shape."""

    def __init__(self, value: ir.Value, array: Array) -> None:
        self.changes = {value: array}

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        return self.changes


def test_a_rewrite_of_another_weight_or_shape_is_refused(tokens: np.ndarray) -> None:
    model = dense_model(1)
    weights = model.graph.initializers
    with pytest.raises(ValueError, match="embedding: not a weight of this block"):
        BlockwiseReference(model, 1).run(tokens, [Wrong(weights["embedding"], np.zeros((2, 2)))])
    with pytest.raises(ValueError, match=r"l0.q: shape \(2, 2\), not \(64, 48\)"):
        BlockwiseReference(model, 1).run(tokens, [Wrong(weights["l0.q"], np.zeros((2, 2)))])


class Stranger(Recorder):
    def __init__(self, value: ir.Value) -> None:
        super().__init__()
        self.value = value

    def watched(self, block: Block) -> Sequence[ir.Value]:
        return [self.value]


def test_a_value_of_no_block_cannot_be_watched(tokens: np.ndarray) -> None:
    model = dense_model(1)
    logits = model.graph.outputs[0]
    with pytest.raises(ValueError, match="logits: not values of this block"):
        BlockwiseReference(model, 1).run(tokens, [Stranger(logits)])
