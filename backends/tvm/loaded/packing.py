"""Named tensors with padding become packed rows, and rows named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.kv_layout import TILE
from optc.backends.tvm.loaded.input_memory import ALIGNMENT, aligned
from optc.backends.tvm.packed_data import Packed, PackedPatches
from optc.errors import RequestError

#: Numbers of a line of memory.
_LINE = ALIGNMENT // 4
Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """The rows of some sequences.

    Attributes:
        tokens: Ids i32 [T], or features f32 [rate * T, K], aligned.
        types: Types i32 [T].
        lengths: Tokens of each sequence i64 [B], one at least.
    """

    tokens: Array
    types: Int32
    lengths: Array

    def arguments(self, packed: Packed) -> list[Array]:
        """The step's arguments before the weights, in order."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        places = np.arange(ends[-1]) - np.repeat(starts, self.lengths)
        tiles = -(-self.lengths // TILE)
        first_tiles = np.cumsum(tiles) - tiles
        slots = places + np.repeat(first_tiles * TILE, self.lengths)
        table = first_tiles[:, None] + np.arange(tiles.max())
        arrays = [
            *([] if packed.patches else [self.tokens]),
            places,
            *([self.types] if packed.types else []),
            np.concatenate([[0], ends]),
            slots[None],
            self.lengths[None],
            # beyond its last tile a sequence's table has any that exists
            np.minimum(table, tiles.sum() - 1)[None],
            np.array([TILE]),
        ]
        return [*([self.tokens] if packed.patches else []), *_copied(arrays)]


def _copied(arrays: Sequence[Array]) -> list[Int32]:
    """int32, each where kernels may load whole vectors."""
    sizes = [-(-array.size // _LINE) * _LINE for array in arrays]
    memory, copies, start = aligned(sum(sizes)), [], 0
    for array, size in zip(arrays, sizes, strict=True):
        copy = memory[start : start + array.size].reshape(array.shape)
        copy[...] = array
        copies.append(copy)
        start += size
    return copies


def most_tiles(packed: Packed) -> int:
    """Tiles that the sequences of a call may need."""
    return packed.max_rows // TILE + packed.max_sequences


def shape_of(inputs: Mapping[str, Array], packed: Packed) -> tuple[int, int]:
    """Sequences, and tokens of each, padding included."""
    if packed.patches:
        return len(inputs[packed.patches.input]), packed.patches.tokens
    batch, tokens = inputs[packed.ids].shape
    return batch, tokens


def lengths_of(inputs: Mapping[str, Array], packed: Packed) -> Array:
    """Tokens of each sequence i64 [batch].

    Raises:
        RequestError: A mask is not ones and then zeros, a sequence has no tokens, or more than the
            model has places for, or a number is outside of its table.
    """
    batch, tokens = shape_of(inputs, packed)
    lengths = np.full(batch, tokens)
    if packed.patches:
        return lengths
    ids = inputs[packed.ids]
    if packed.mask:
        mask = inputs[packed.mask]
        lengths = np.count_nonzero(mask, axis=1)
        if not np.array_equal(mask, np.arange(tokens) < lengths[:, None]):
            raise RequestError(
                "is not ones, then zeros, in every row",
                where=f"input {packed.mask}",
                hint="pad texts behind their last token",
            )
    if batch and not lengths.all():
        raise RequestError(
            f"row {int(np.argmin(lengths))} has no token", where=f"input {packed.ids}"
        )
    if packed.position_count and lengths.max(initial=0) > packed.position_count:
        raise RequestError(
            f"a row has {int(lengths.max())} tokens",
            where=f"input {packed.ids}",
            hint=f"the model has places for {packed.position_count}",
        )
    _check_range(ids, packed.ids, packed.vocabulary)
    if packed.types:
        _check_range(inputs[packed.types], packed.types, packed.type_count)
    return lengths


def _check_range(values: Array, name: str, count: int) -> None:
    if values.size and not (values.min() >= 0 and values.max() < count):
        wrong = values[(values < 0) | (values >= count)].flat[0]
        raise RequestError(
            f"holds {int(wrong)}", where=f"input {name}", hint=f"its values are 0 to {count - 1}"
        )


def calls_of(lengths: Array, packed: Packed) -> Iterator[slice]:
    """Runs of sequences that fit a call of the engine, in order."""
    first, rows = 0, 0
    for index, length in enumerate(lengths.tolist()):
        full = rows + length > packed.max_rows or index - first == packed.max_sequences
        if full and index > first:
            yield slice(first, index)
            first, rows = index, 0
        rows += length
    if len(lengths) > first:
        yield slice(first, len(lengths))


def rows_of(inputs: Mapping[str, Array], packed: Packed, part: slice, lengths: Array) -> Rows:
    """The rows of some sequences."""
    if packed.patches:
        rows = features_of(inputs[packed.patches.input][part], packed.patches)
        return Rows(rows, np.zeros(0, np.int32), lengths[part])
    ids = inputs[packed.ids][part]
    kept = np.arange(ids.shape[1]) < lengths[part, None]
    tokens = ids[kept].astype(np.int32)
    types = inputs[packed.types][part][kept].astype(np.int32) if packed.types else tokens[:0]
    return Rows(tokens, types, lengths[part])


def features_of(x: Array, patches: PackedPatches) -> Array:
    """Rows f32[batch * rows, K] of an input [batch, channels, …], each the values of a patch,
    channel by channel, between rows of zeros."""
    batch, channels, *axes = x.shape
    grid = [size // part for size, part in zip(axes, patches.sizes, strict=True)]
    count, width = math.prod(grid), channels * math.prod(patches.sizes)
    memory = aligned(batch * patches.rows * width).view(np.float32)
    rows = memory.reshape(batch, patches.rows, width)
    # [batch, grid…, channels, sizes…] of [batch, channels, grid and size of each axis]
    pairs = zip(grid, patches.sizes, strict=True)
    cut = x.reshape(batch, channels, *(size for pair in pairs for size in pair))
    order = [0, *range(2, cut.ndim, 2), 1, *range(3, cut.ndim, 2)]
    for one, source in zip(rows, cut.transpose(order), strict=True):
        place = one[patches.lead : patches.lead + count]  # contiguous, so that this is a view
        place.reshape(source.shape)[...] = source
    return rows.reshape(-1, width)


def outputs_of(
    names: Sequence[str],
    found: Sequence[list[Array]],
    packed: Packed,
    shape: tuple[int, int],
    lengths: Array,
) -> dict[str, Array]:
    """Outputs by name for the results of the calls, in order: rows of padding are zeros.

    Args:
        names: Of the outputs.
        found: By call, the rows of each output.
        packed: Which outputs have a row for each token.
        shape: Of the ids.
        lengths: Tokens of each sequence.
    """
    outputs: dict[str, Array] = {}
    for index, name in enumerate(names):
        parts = [results[index] for results in found]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if name in packed.by_token and len(rows) == math.prod(shape):
            rows = rows.reshape(*shape, *rows.shape[1:])
        elif name in packed.by_token:
            padded = np.zeros((*shape, *rows.shape[1:]), rows.dtype)
            padded[np.arange(shape[1]) < lengths[:, None]] = rows
            rows = padded
        if name in packed.heads:
            # a view: who wants rows again, as decoders do, gets them without a copy
            rows = rows.reshape(*shape, packed.heads[name], -1).transpose(0, 2, 1, 3)
        outputs[name] = rows
    return outputs
