"""A real tiny attention model in NumPy that reads its KV from the pools by slots.

A wrong block table, slot, length or window gives wrong tokens. Every row is computed on its own,
so that its bits do not depend on what shares the step. `generate_naively` is the oracle: the
same model, everything computed again for every token, without pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from optc.errors import ArtifactError, InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import (
    Executable,
    Float32,
    Int32,
    KVGroup,
    LayerKV,
    StepBatch,
    StepInterface,
)
from tests.support.trees import path_to

WIDTH = 8
VOCAB = 48

Float64 = npt.NDArray[np.float64]


def toy_spec(
    windows: tuple[int, ...] = (0,),
    *,
    max_context: int = 64,
    max_rows: int = 16,
    max_sequences: int = 8,
    block_multiple: int = 2,
    max_logit_rows: int | None = None,
    vocab: int = VOCAB,
    tree: bool = False,
) -> StepInterface:
    """One layer in each group, one group for each window."""
    return StepInterface(
        vocab_size=vocab,
        max_context=max_context,
        max_rows=max_rows,
        max_sequences=max_sequences,
        max_logit_rows=max_sequences if max_logit_rows is None else max_logit_rows,
        block_multiple=block_multiple,
        batch_invariant=True,
        groups=tuple(KVGroup(window, (i,)) for i, window in enumerate(windows)),
        layers=tuple(LayerKV(i, 1, WIDTH, WIDTH, "float32") for i in range(len(windows))),
        tree=tree,
    )


@dataclass(frozen=True)
class ToyModel:
    """Weights of the toy model, and its arithmetic for one row."""

    embedding: Float64
    position: Float64
    qkv: Float64
    windows: tuple[int, ...]

    @classmethod
    def seeded(cls, spec: StepInterface, seed: int = 0) -> ToyModel:
        rng = np.random.default_rng(seed)
        windows = tuple(group.window for group in spec.groups)
        return cls(
            rng.normal(size=(spec.vocab_size, WIDTH)),
            rng.normal(size=(spec.max_context, WIDTH)),
            rng.normal(size=(len(windows), 3, WIDTH, WIDTH)) / 2,
            windows,
        )

    def embed(self, token: int, position: int) -> Float64:
        return self.embedding[token] + self.position[position]

    def project(self, layer: int, x: Float64) -> tuple[Float64, Float64, Float64]:
        q, k, v = (self.qkv[layer, i] @ x for i in range(3))
        return q, k.astype(np.float32).astype(np.float64), v.astype(np.float32).astype(np.float64)

    def attend(self, x: Float64, q: Float64, keys: Float64, values: Float64) -> Float64:
        scores = np.array([key @ q for key in keys])
        weights = np.exp(scores - scores.max())
        mixed = np.zeros(WIDTH)
        for weight, value in zip(weights, values, strict=True):
            mixed += weight * value
        return np.tanh(x + mixed / weights.sum())

    def logits(self, x: Float64) -> Float32:
        return np.array([3 * (row @ x) for row in self.embedding], np.float32)


def naive_logits(model: ToyModel, tokens: list[int]) -> Float32:
    """Logits [V] after the last token, from nothing but the tokens."""
    return model.logits(naive_hidden(model, tokens))


def naive_hidden(model: ToyModel, tokens: list[int]) -> Float64:
    """The last hidden state [WIDTH] of the last token, from nothing but the tokens."""
    *_, last = naive_layers(model, tokens)
    return last[-1]


def naive_layers(model: ToyModel, tokens: list[int]) -> Iterator[list[Float64]]:
    """Hidden states [WIDTH] of all tokens: before each layer, and behind the last."""
    hidden = [model.embed(token, i) for i, token in enumerate(tokens)]
    for layer, window in enumerate(model.windows):
        yield hidden
        rows = [model.project(layer, x) for x in hidden]
        first = [max(0, i - window + 1) if window else 0 for i in range(len(rows))]
        hidden = [
            model.attend(
                hidden[i],
                rows[i][0],
                np.array([row[1] for row in rows[first[i] : i + 1]]),
                np.array([row[2] for row in rows[first[i] : i + 1]]),
            )
            for i in range(len(rows))
        ]
    yield hidden


def generate_naively(
    model: ToyModel, prompt: list[int], count: int, eos: frozenset[int] = frozenset()
) -> list[int]:
    """Greedy continuation, end token included."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(int(np.argmax(naive_logits(model, tokens))))
        if tokens[-1] in eos:
            break
    return tokens[len(prompt) :]


class ToyExecutable:
    """The toy model behind the `Executable` contract; it checks every batch it gets."""

    def __init__(self, spec: StepInterface, seed: int = 0) -> None:
        self.spec = spec
        self.model = ToyModel.seeded(spec, seed)
        self.batches: list[StepBatch] = []
        self.closed = False

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        if block_size % self.spec.block_multiple:
            raise InputError("block size", where="toy")
        self.block_size = block_size
        self.blocks = blocks_per_group
        # What nobody wrote is NaN: reading it spoils the logits and is seen.
        self.keys = [np.full((n * block_size, WIDTH), np.nan) for n in blocks_per_group]
        self.values = [np.full((n * block_size, WIDTH), np.nan) for n in blocks_per_group]

    def share_kv(self, owner: Executable) -> None:
        """Layer i, which is group i, has the pools of the owner's layer ``spec.shared_kv[i]``."""
        assert isinstance(owner, ToyExecutable)
        layers = self.spec.shared_kv
        self.block_size = owner.block_size
        self.blocks = tuple(owner.blocks[layer] for layer in layers)
        self.keys = [owner.keys[layer] for layer in layers]
        self.values = [owner.values[layer] for layer in layers]

    def step(self, batch: StepBatch) -> Float32:
        self.check(batch)
        self.batches.append(batch)
        hidden = [
            self.model.embed(int(t), int(p))
            for t, p in zip(batch.tokens, batch.positions, strict=True)
        ]
        for layer, window in enumerate(self.model.windows):
            rows = [self.model.project(layer, x) for x in hidden]
            for slot, (_, key, value) in zip(batch.slot_mapping[layer], rows, strict=True):
                self.keys[layer][slot], self.values[layer][slot] = key, value
            hidden = [
                self.model.attend(x, rows[i][0], *self.visible(batch, layer, window, i))
                for i, x in enumerate(hidden)
            ]
        self.hidden: Float32 = np.array(hidden, np.float32)
        return np.array([self.model.logits(hidden[row]) for row in batch.logit_rows])

    def hidden_states(self) -> Float32:
        """[T, WIDTH] of the last step."""
        return self.hidden

    def visible(
        self, batch: StepBatch, layer: int, window: int, row: int
    ) -> tuple[Float64, Float64]:
        """K and V that a row sees, found through its sequence's block table."""
        sequence = int(np.searchsorted(batch.query_starts, row, side="right")) - 1
        first, end = batch.query_starts[sequence : sequence + 2].tolist()
        before = int(batch.kv_lengths[layer, sequence]) - (end - first)
        own = np.arange(first, row + 1)
        if batch.tree_parent is not None:
            own = np.array(path_to(batch.tree_parent, row))
        at = np.concatenate([np.arange(before), before + own - first])[-window:]
        blocks = batch.block_tables[layer, sequence, at // self.block_size]
        assert (blocks >= 0).all(), "a released block is visible"
        slots = blocks * self.block_size + at % self.block_size
        return self.keys[layer][slots], self.values[layer][slots]

    def check(self, batch: StepBatch) -> None:
        """The contract of `StepBatch`: types, shapes, ranges, limits."""
        groups, sequences, rows = len(self.blocks), len(batch.query_starts) - 1, len(batch.tokens)
        shapes = {
            "tokens": (rows,),
            "positions": (rows,),
            "slot_mapping": (groups, rows),
            "query_starts": (sequences + 1,),
            "kv_lengths": (groups, sequences),
            "block_tables": (groups, sequences, batch.block_tables.shape[2]),
            "logit_rows": (len(batch.logit_rows),),
        }
        for name, shape in shapes.items():
            array: Int32 = getattr(batch, name)
            assert array.shape == shape, name
            assert array.dtype == np.int32, name
            assert array.flags.c_contiguous, name
        assert 0 < rows <= self.spec.max_rows
        assert 0 < sequences <= self.spec.max_sequences
        assert 0 < len(batch.logit_rows) <= self.spec.max_logit_rows
        assert (np.diff(batch.query_starts) > 0).all()
        assert batch.query_starts[-1] == rows
        assert (batch.positions < self.spec.max_context).all()
        for group, blocks in enumerate(self.blocks):
            slots = batch.slot_mapping[group]
            assert len(set(slots.tolist())) == rows
            assert ((slots >= 0) & (slots < blocks * self.block_size)).all()
            assert (batch.block_tables[group] < blocks).all()
        if batch.tree_parent is not None:
            self.check_tree(batch, batch.tree_parent)

    def check_tree(self, batch: StepBatch, parents: Int32) -> None:
        """Rows descend from earlier rows of their sequence, one position on."""
        assert self.spec.tree
        assert parents.shape == (len(batch.tokens),)
        assert parents.dtype == np.int32
        starts = batch.query_starts[:-1]
        assert (parents[starts] == -1).all()
        followers = np.setdiff1d(np.arange(len(parents)), starts)
        firsts = starts[np.searchsorted(starts, followers, side="right") - 1]
        assert (firsts <= parents[followers]).all()
        assert (parents[followers] < followers).all()
        assert (batch.positions[followers] == batch.positions[parents[followers]] + 1).all()

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        self.keys[group][dst_slots] = self.keys[group][src_slots]
        self.values[group][dst_slots] = self.values[group][src_slots]

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        both = [pool[group].reshape(self.blocks[group], -1) for pool in (self.keys, self.values)]
        return np.concatenate([pool[blocks] for pool in both], axis=1).view(np.uint8)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        halves = np.split(np.ascontiguousarray(data).view(np.float64), 2, axis=1)
        for pool, half in zip((self.keys, self.values), halves, strict=True):
            pool[group].reshape(self.blocks[group], -1)[blocks] = half

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        raise InputError("the engine takes no adapters", where="toy")

    def close(self) -> None:
        self.closed = True


class SwappingToy(ToyExecutable):
    """The toy with the weights of the seed that its file of weights holds."""

    def __init__(self, spec: StepInterface, folder: Path) -> None:
        super().__init__(spec, _seed_in(folder))

    def use_weights(self, folder: Path) -> None:
        self.model = ToyModel.seeded(self.spec, _seed_in(folder))


def _seed_in(folder: Path) -> int:
    text = (folder / "weights.bin").read_text()
    if not text.isdigit():
        raise ArtifactError("the weights are too few", where="weights.bin")
    return int(text)
