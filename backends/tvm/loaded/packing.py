"""Named tensors with padding become packed rows, and rows named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.kv_layout import TILE
from optc.backends.tvm.loaded.input_memory import ALIGNMENT, aligned
from optc.backends.tvm.packed_data import Packed
from optc.errors import RequestError

#: Numbers of a line of memory.
_LINE = ALIGNMENT // 4
Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """The rows of some sequences.

    Attributes:
        tokens: Ids i32 [T].
        types: Types i32 [T].
        lengths: Tokens of each sequence i64 [B], one at least.
    """

    tokens: Int32
    types: Int32
    lengths: Array

    def arguments(self, packed: Packed) -> list[Int32]:
        """The step's arguments before the weights, in order."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        places = np.arange(ends[-1]) - np.repeat(starts, self.lengths)
        tiles = -(-self.lengths // TILE)
        first_tiles = np.cumsum(tiles) - tiles
        slots = places + np.repeat(first_tiles * TILE, self.lengths)
        table = first_tiles[:, None] + np.arange(tiles.max())
        arrays = [
            self.tokens,
            places,
            *([self.types] if packed.types else []),
            np.concatenate([[0], ends]),
            slots[None],
            self.lengths[None],
            # beyond its last tile a sequence's table has any that exists
            np.minimum(table, tiles.sum() - 1)[None],
            np.array([TILE]),
        ]
        return _copied(arrays)


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


def lengths_of(inputs: Mapping[str, Array], packed: Packed) -> Array:
    """Tokens of each sequence i64 [batch].

    Raises:
        RequestError: A mask is not ones and then zeros, a sequence has no tokens, or more than the
            model has places for, or a number is outside of its table.
    """
    ids = inputs[packed.ids]
    batch, tokens = ids.shape
    lengths = np.full(batch, tokens)
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
    ids = inputs[packed.ids][part]
    kept = np.arange(ids.shape[1]) < lengths[part, None]
    tokens = ids[kept].astype(np.int32)
    types = inputs[packed.types][part][kept].astype(np.int32) if packed.types else tokens[:0]
    return Rows(tokens, types, lengths[part])


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
        rows = np.concatenate([results[index] for results in found])
        if name in packed.by_token:
            padded = np.zeros((*shape, *rows.shape[1:]), rows.dtype)
            padded[np.arange(shape[1]) < lengths[:, None]] = rows
            rows = padded
        outputs[name] = rows
    return outputs
