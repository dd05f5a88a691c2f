"""Weights beside the model: written tile by tile, so that no weight need fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir

from optc.backends.onnxruntime.legalize.packed import PackedPart
from optc.ir.weights import Array, LazyWeight
from optc.system.room import give_room

#: ONNX Runtime maps weights whose offsets are multiples of a page.
_ALIGNMENT = 4096
#: Smaller tensors stay in the model.
_INLINE_BYTES = 1024


def store_weights(model: ir.Model, path: Path) -> int:
    """Write the initializers of ``model`` to ``path`` and let it refer to them there.

    Returns:
        Bytes of the file.
    """
    values = [v for v in model.graph.initializers.values() if _is_stored(v)]
    _take_in(model, set(values))
    offsets, size = _offsets(values)
    by_columns = [value for value in values if _is_by_columns(value)]
    with path.open("wb") as file:
        file.truncate(size)
        for value in by_columns:  # these are written into a mapped file
            give_room(file.fileno(), offsets[value], _tensor(value).nbytes)
        for value, start, array in _tiles([v for v in values if v not in by_columns]):
            file.seek(offsets[value] + start)
            _write(file, array)
    for value in by_columns:
        _write_columns(path, offsets[value], value)
    for value in values:
        tensor = _tensor(value)
        value.const_value = ir.ExternalTensor(
            path.name,
            offsets[value],
            tensor.nbytes,
            ir.DataType(tensor.dtype),
            shape=value.shape or ir.Shape([]),
            name=value.name or "",
            base_dir=path.parent,
        )
    return size


def _take_in(model: ir.Model, stored: set[ir.Value]) -> None:
    """Read what stays in the model and lies beside the file that it came from, which is elsewhere:
    small tensors, and those of subgraphs."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value not in stored and isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)


def _is_stored(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.nbytes > _INLINE_BYTES


def _is_by_columns(value: ir.Value) -> bool:
    """True if a weight is kept as the transpose of its rows: those of experts are, and may be too
    large to be transposed in memory."""
    tensor = value.const_value
    if not isinstance(tensor, LazyWeight) or isinstance(tensor, PackedPart):
        return False
    return tensor.transposed and ir.DataType(tensor.dtype).itemsize >= 1


def _write_columns(path: Path, offset: int, value: ir.Value) -> None:
    """Write the rows of a weight [N, K] as columns [K, N], tile by tile."""
    tensor = _tensor(value)
    if not isinstance(tensor, LazyWeight):
        raise TypeError(f"{value.name} is not read by rows")
    kind = ir.DataType(tensor.dtype).numpy()
    stored = np.memmap(path, kind, "r+", offset, tuple(tensor.rows_shape[::-1]))
    for start, stop in tensor.tiles():
        stored[:, start:stop] = tensor.read_rows(start, stop).T
    stored.flush()


def _offsets(values: list[ir.Value]) -> tuple[dict[ir.Value, int], int]:
    offsets = {}
    end = 0
    for value in values:
        offsets[value] = end
        end += -(-_tensor(value).nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, end


def _tiles(values: list[ir.Value]) -> Iterator[tuple[ir.Value, int, Array]]:
    """Each tensor piece by piece, with the byte where a piece starts; tensors of one packed weight
    together, so that it is quantized once."""
    parts: dict[int, dict[int, ir.Value]] = {}
    for value in values:
        tensor = value.const_value
        if isinstance(tensor, PackedPart):
            parts.setdefault(id(tensor.packed), {})[tensor.index] = value
    done: set[int] = set()
    for value in values:
        tensor = _tensor(value)
        if isinstance(tensor, PackedPart):
            if id(tensor.packed) not in done:
                done.add(id(tensor.packed))
                yield from _packed_tiles(tensor, parts[id(tensor.packed)])
        elif isinstance(tensor, LazyWeight) and not tensor.transposed:
            position = 0
            for start, stop in tensor.tiles():
                rows = tensor.read_rows(start, stop)
                yield value, position, rows
                position += rows.nbytes
        else:  # two values of 4 bits are one byte
            packed = ir.DataType(tensor.dtype).itemsize < 1
            yield value, 0, np.frombuffer(tensor.tobytes(), np.uint8) if packed else tensor.numpy()


def _packed_tiles(
    part: PackedPart, values: dict[int, ir.Value]
) -> Iterator[tuple[ir.Value, int, Array]]:
    positions = dict.fromkeys(values, 0)
    for start, stop in part.packed.source.values().tiles():
        tile = part.packed.read(start, stop)
        for index, value in values.items():
            array = tile[index]
            if array is None:
                raise ValueError(f"{value.name}: a symmetric weight has no zero points")
            yield value, positions[index], array
            positions[index] += array.nbytes


def _write(file: BinaryIO, array: Array) -> None:
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    if value.const_value is None:
        raise ValueError(f"{value.name} has no value")
    return value.const_value
