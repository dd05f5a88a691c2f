"""The weights that an engine stores sparse, and why others that have many zeros are dense."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights import packing
from optc.backends.tvm.weights import sparse_packing as sparse
from optc.backends.tvm.weights.weight_layouts import WeightParts
from optc.backends.tvm.weights.weights_file import Chunk, PackedWeight
from optc.ir.quantized_rows import QuantizedTile
from optc.ir.weights import LazyWeight, as_lazy
from optc.system.hardware.blas_threads import one_blas_thread
from optc.system.hardware.target import usable_threads

#: A weight is sparse if its values and mask take at most this share of the dense values' bytes:
#: a little more than the 0.63 of half zeros, which are read so much faster. Nearer to 1 the work of
#: spreading them out costs what the bytes save.
MOST_BYTES = 0.8
#: Share of zeros from which on a report says why int8 weights are dense. Those of fewer bits have
#: many zeros by themselves, and are named where sparse ones would be small enough.
MANY_ZEROS = 0.2
#: Rows that are read to estimate a weight's share of zeros: so many at each of so many places.
SAMPLE_ROWS, SAMPLE_PLACES = 8, 4

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DenseWeight:
    """A weight with many zeros that is stored dense.

    Attributes:
        name: Of the weight.
        zeros: Share of its values that are zero, by a sample.
        reason: Why, as the end of a sentence.
    """

    name: str
    zeros: float
    reason: str


@dataclass
class SparseWeights:
    """Decides how weights are stored, and keeps what a report says of them.

    Attributes:
        refusal: Why no weight of the engine can be sparse, as the end of a sentence; empty if some
            can.
        given: Names of the tensors of another engine whose weights are read, which has decided;
            None is none.
        exact: Count zeros; else a sample gives their share, for an engine that is not built.
        stored: Share of zeros of each weight that is stored sparse.
        dense: Weights with many zeros that are not.
    """

    refusal: str = ""
    given: frozenset[str] | None = None
    exact: bool = True
    stored: dict[str, float] = field(default_factory=dict)
    dense: list[DenseWeight] = field(default_factory=list)

    def packed(self, name: str, parts: WeightParts) -> PackedWeight | None:
        """A quantized weight, seen as [K, N], as a sparse one of that name; None if it is dense."""
        rows, read = as_lazy(parts.values, transposed=True), parts.reader()
        zeros = sampled_zeros(rows, lambda start, stop: is_zero(read(start, stop)))
        plain = parts.bits == 8 and not parts.group_size and parts.zero_points is None
        small = byte_share(zeros, parts.bits) <= MOST_BYTES
        if not small and not (plain and zeros >= MANY_ZEROS):
            return None
        reason = self.refusal
        if not plain:
            reason = reason or f"there is no sparse kernel for {_kind(parts)}"
        if self.given is not None and f"{name}.mask" not in self.given:
            reason = reason or "the engine whose weights it reads has it dense"
        if not reason and not small:
            share = byte_share(zeros, parts.bits)
            reason = f"its mask and values would take {share:.2f} of the dense bytes"
        if reason:
            self.dense.append(DenseWeight(name, zeros, reason))
            return None
        counts = count(rows, read) if self.exact else _estimated(rows.rows_shape, zeros)
        self.stored[name] = 1 - float(counts.sum()) / float(np.prod(rows.rows_shape))
        return sparse_weight(name, rows, read, counts)

    def float_weight(self, name: str, tensor: ir.TensorProtocol) -> None:
        """Note a matmul's float weight seen as [K, N], of which no kernel takes a sparse one."""
        rows = as_lazy(tensor, transposed=True)
        zeros = sampled_zeros(rows, lambda start, stop: rows.read_rows(start, stop) == 0)
        if byte_share(zeros, 16) <= MOST_BYTES:
            kind = ir.DataType(rows.dtype).name.lower()
            reason = self.refusal or f"there is no sparse kernel for {kind}"
            self.dense.append(DenseWeight(name, zeros, reason))

    def lines(self) -> tuple[str, ...]:
        """Of the weights with many zeros that are dense, a line for each reason."""
        by_reason: defaultdict[str, list[DenseWeight]] = defaultdict(list)
        for weight in self.dense:
            by_reason[weight.reason].append(weight)
        return tuple(_line(reason, weights) for reason, weights in by_reason.items())

    def to_json(self) -> dict[str, Any]:
        """For a report: share of zeros of the sparse weights, and those that are dense."""
        dense = [{"name": w.name, "zeros": w.zeros, "reason": w.reason} for w in self.dense]
        return {"sparse": self.stored, "dense": dense}


def byte_share(zeros: float, bits: int) -> float:
    """Bytes of mask and values as a share of the dense values', where so many are zero."""
    return 1 / bits + 1 - zeros


def is_zero(tile: QuantizedTile) -> Bools:
    """True for the weights of a tile that are zero: [n, K]."""
    values = tile.values.astype(np.int32)
    k, columns = values.shape[1], np.ones(1, np.int32)
    if tile.group_scales is not None:
        groups = tile.group_scales.shape[1]
        columns = np.repeat(tile.group_scales.astype(np.int32), -(-k // groups), axis=1)[:, :k]
    zeros = np.zeros((1, 1), np.float32)
    if tile.zero_points is not None:
        points = tile.zero_points.reshape(len(values), -1).astype(np.float32)
        zeros = np.repeat(points, -(-k // points.shape[1]), axis=1)[:, :k]
    found: Bools = values * columns == zeros
    return found


def sampled_zeros(rows: LazyWeight, zeros: Callable[[int, int], Bools]) -> float:
    """Share of zeros in a few rows of a weight, which ``zeros(start, stop)`` gives."""
    n = rows.rows_shape[0]
    spots = {max(0, n - SAMPLE_ROWS) * i // (SAMPLE_PLACES - 1) for i in range(SAMPLE_PLACES)}
    return float(np.mean([zeros(at, min(n, at + SAMPLE_ROWS)).mean() for at in sorted(spots)]))


def count(rows: LazyWeight, read: Callable[[int, int], QuantizedTile]) -> sparse.I64:
    """Values that are not zero of each block, segment and vector, read tile by tile: by all usable
    threads, as weights are packed."""
    with one_blas_thread(), ThreadPoolExecutor(usable_threads(), "optc-count") as pool:
        tiles = rows.tiles(packing.BLOCK)
        counts = pool.map(lambda tile: sparse.count_nonzeros(read(*tile).values), tiles)
        return np.concatenate(list(counts))


def _estimated(shape: tuple[int, ...], zeros: float) -> sparse.I64:
    n, k = shape
    counts = np.zeros((-(-n // packing.BLOCK), sparse.segments(k), sparse.VECTORS), np.int64)
    counts[0, 0, 0] = round(n * k * (1 - zeros))
    return counts


def sparse_weight(
    name: str, rows: LazyWeight, read: Callable[[int, int], QuantizedTile], counts: sparse.I64
) -> PackedWeight:
    """A symmetric int8 weight seen as [K, N] with scales of the channels.

    Tensors: mask u64 [N/64, Kp/4, 4]; starts i64 [N/64, K/256, 4]; values u8 [nonzeros + 64];
    scales float32 [N/64, 1, 64] (`optc.backends.tvm.weights.sparse_packing`).

    Args:
        name: Of the packed weight.
        rows: Its values, for their shape.
        read: Reads some rows of it.
        counts: Of all rows, as `count` gives them.
    """
    n, k = rows.rows_shape
    blocks = -(-n // packing.BLOCK)
    steps = -(-k // packing.K_MULTIPLE) * packing.K_MULTIPLE // sparse.STEP
    first = sparse.starts(counts)
    tensors = (
        Tensor(f"{name}.mask", "uint64", (blocks, steps, sparse.VECTORS)),
        Tensor(f"{name}.starts", "int64", first.shape),
        Tensor(f"{name}.values", "uint8", (int(counts.sum()) + sparse.SLACK,)),
        Tensor(f"{name}.scales", "float32", (blocks, 1, packing.BLOCK)),
    )

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        tile = read(start, stop)
        mask, values = sparse.pack_sparse(tile.values)
        yield 0, mask
        yield 1, first[start // packing.BLOCK : -(-stop // packing.BLOCK)]
        yield 2, values
        if stop == n:
            yield 2, np.zeros(sparse.SLACK, np.uint8)
        yield 3, packing.pack_columns(tile.scales, np.float32)

    return PackedWeight(tensors, tuple(rows.tiles(packing.BLOCK)), pack)


def _kind(parts: WeightParts) -> str:
    grouped = f" in groups of {parts.group_size}" if parts.group_size else " with zero points"
    return f"{parts.bits} bits{grouped}"


def _line(reason: str, weights: list[DenseWeight]) -> str:
    shares = [100 * weight.zeros for weight in weights]
    low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
    share = low if low == high else f"{low} to {high}"
    if len(weights) == 1:
        return f"weight {weights[0].name} with {share} % zeros is stored dense: {reason}"
    return (
        f"{len(weights)} weights with {share} % zeros, such as {weights[0].name}, are stored "
        f"dense: {reason}"
    )
