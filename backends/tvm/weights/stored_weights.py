"""The weights of an engine's file as rows again (`optc.ir.engine_weights`): packing undone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.backend import StoredTensor
from optc.backends.tvm.weights import packing, unpacking
from optc.errors import ArtifactError, UnsupportedError
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile, joined_tiles
from optc.ir.weights import Array, LazyWeight

#: How names of packed tensors end behind the names of the graph's initializers.
_PARTS = ("values", "scales", "zeros", "minimums", "groups", "mask", "starts")
_PACKED = (".packed", ".experts")
_MATMULS = (".matmul", ".experts")
_LAYOUTS = (*_MATMULS, ".table")

#: Reads rows of the packed weight, counted with the padding.
_Rows = Callable[[int, int], Any]


def stored_weights(tensors: Sequence[StoredTensor]) -> dict[str, StoredWeight]:
    """The weights whose tensors these are, by their names in the graph."""
    found: defaultdict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for tensor in tensors:
        name, part = tensor.name, ""
        stem, _, end = name.rpartition(".")
        if end in _PARTS and stem.endswith(_PACKED):
            name, part = stem.rpartition(".")[0], end
        else:
            layout = next((one for one in _LAYOUTS if name.endswith(one)), "")
            name, part = name.removesuffix(layout), layout
        found[name][part] = tensor
    return {name: StoredWeight(name, parts) for name, parts in found.items()}


@dataclass(frozen=True)
class StoredWeight:
    """One weight.

    Attributes:
        name: In the graph.
        parts: Its tensors, by what each is: ``values``, ``scales``, … of a packed integer weight,
            or one by the layout of floats.
    """

    name: str
    parts: Mapping[str, StoredTensor]

    def rows(self, shape: tuple[int, ...], experts: int = 1) -> QuantizedRows | LazyWeight:
        """The weight by rows; see `optc.ir.engine_weights.EngineWeight.rows`."""
        if "mask" in self.parts:
            raise UnsupportedError(
                "the weight is stored sparse, as a mask and values",
                where=self.name,
                hint="compile the model again without pruning of weights",
            )
        if "values" in self.parts:
            return self._integers(shape, experts)
        ((layout, tensor),) = self.parts.items()
        floats = self._floats(layout, tensor, shape)
        read = _without_padding(floats, shape[0], experts) if layout in _MATMULS else floats
        narrow = tensor.dtype == "uint16"
        kind = ir.DataType.BFLOAT16 if narrow else ir.DataType.FLOAT
        return LazyWeight(read, shape, kind, self.name)

    def _floats(self, layout: str, tensor: StoredTensor, shape: tuple[int, ...]) -> _Rows:
        if layout not in _MATMULS:
            if tensor.shape != shape:
                raise self._other_shape(tensor, shape)
            mapped = _mapped(tensor)
            return lambda start, stop: _typed(mapped[start:stop])
        mapped, columns = _mapped(tensor), shape[1]
        wide = tensor.shape[1] * (2 if tensor.dtype == "uint16" else 1)
        if not columns <= wide < columns + 2:
            raise self._other_shape(tensor, shape)

        def read(start: int, stop: int) -> Array:
            blocks = mapped[start // packing.BLOCK : -(-stop // packing.BLOCK)]
            if tensor.dtype == "uint16":
                rows: Array = unpacking.unpack_bfloat16(blocks)[:, :columns]
            else:
                rows = unpacking.unpack_float32(blocks)
            first = start % packing.BLOCK
            return _typed(rows[first : first + stop - start])

        return read

    def _integers(self, shape: tuple[int, ...], experts: int) -> QuantizedRows:
        values, scales = self.parts["values"], self.parts["scales"]
        (rows, columns), steps = shape, values.shape[1]
        padded = -(-columns // packing.K_MULTIPLE) * packing.K_MULTIPLE
        bits = steps * 32 // padded
        if bits not in packing.PLANES or steps * 32 != bits * padded:
            raise self._other_shape(values, shape)
        zeros, groups = self.parts.get("zeros"), self.parts.get("groups")
        grouped = scales if groups is None else groups
        per_channel = groups is None and scales.dtype == "float32"
        size = 0 if per_channel else columns // grouped.shape[1]
        blocks = experts * -(-(rows // experts) // packing.BLOCK)
        if values.shape[0] != blocks or size * grouped.shape[1] != (0 if per_channel else columns):
            raise self._other_shape(values, shape)
        floats = "minimums" in self.parts
        symmetric = zeros is None and groups is None and not floats
        read = _without_padding(
            _tiles(self.parts, bits, columns, symmetric=symmetric), rows, experts
        )
        integers = groups is not None
        return QuantizedRows(
            read, rows, columns, bits, size, symmetric, self.name, integers, float_zeros=floats
        )

    def _other_shape(self, tensor: StoredTensor, shape: tuple[int, ...]) -> ArtifactError:
        return ArtifactError(
            f"the tensor has shape {list(tensor.shape)} and holds no weight {list(shape)}",
            where=f"{tensor.path}: {self.name}",
            hint="the artifact's config is not that of its weights",
        )


def _mapped(tensor: StoredTensor) -> npt.NDArray[Any]:
    """The tensor as it lies in its file."""
    kind = np.dtype(tensor.dtype)
    return np.memmap(tensor.path, kind, "r", tensor.offset, tensor.shape).view(np.ndarray)


def _typed(rows: Array) -> Array:
    """float32, or the bfloat16 whose bits these are."""
    kind = ml_dtypes.bfloat16 if rows.dtype == np.uint16 else np.float32
    return np.ascontiguousarray(rows).view(kind)


def _tiles(parts: Mapping[str, StoredTensor], bits: int, columns: int, *, symmetric: bool) -> _Rows:
    mapped = {name: _mapped(tensor) for name, tensor in parts.items()}
    offset = np.uint8(1 << (bits - 1) if symmetric else 0)

    def read(start: int, stop: int) -> QuantizedTile:
        first = start % packing.BLOCK
        inside = slice(first, first + stop - start)
        blocks = slice(start // packing.BLOCK, -(-stop // packing.BLOCK))
        values = unpacking.unpack_int(mapped["values"][blocks], bits)[inside, :columns]
        scales = unpacking.unpack_columns(mapped["scales"][blocks])[inside]
        scales = scales.astype(np.float32)
        if symmetric:  # wraps around, as packing does; values of 4 bits are 0 to 15
            values = (values - offset).view(np.int8)
        zeros = integers = None
        if "zeros" in mapped:
            zeros = unpacking.unpack_columns(mapped["zeros"][blocks])[inside]
        if "minimums" in mapped:
            minimums = unpacking.unpack_columns(mapped["minimums"][blocks])[inside]
            zeros = -minimums.astype(np.float32) / np.where(scales == 0, np.float32(1), scales)
        if "groups" in mapped:
            both = mapped["groups"][blocks]
            integers, offsets = (unpacking.unpack_columns(both[:, :, i])[inside] for i in range(2))
            zeros = (128 - offsets.astype(np.int16)).astype(np.uint8)
        if "groups" in mapped or mapped["scales"].dtype == np.float32:
            scales = scales[:, 0]
        return QuantizedTile(values, scales, zeros, integers)

    return read


def _without_padding(read: _Rows, rows: int, experts: int) -> _Rows:
    """Rows of all experts below each other, each of which begins with a block in the file."""
    if experts == 1:
        return read
    each = rows // experts
    padded = -(-each // packing.BLOCK) * packing.BLOCK

    def of(start: int, stop: int) -> Any:
        parts = []
        for expert in range(start // each, -(-stop // each)):
            low, high = max(start - expert * each, 0), min(stop - expert * each, each)
            parts.append(read(expert * padded + low, expert * padded + high))
        return parts[0] if len(parts) == 1 else _joined(parts)

    return of


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], QuantizedTile):
        return joined_tiles(parts)
    return np.concatenate(parts)
