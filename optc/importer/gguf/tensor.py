"""One tensor of a GGUF file, read by rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, Leaf, box_by_rows
from optc.importer.gguf.grids import GROUP, bits_of, has_minimums, read_tile
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.stacked_weights import Box
from optc.ir.weights import Given


@dataclass(frozen=True)
class GgufTensor:
    """Rows of blocks: the last axis is cut into blocks, each with its own scale.

    Attributes:
        file: The file.
        name: Its name there, such as ``blk.0.attn_q.weight``.
        dtype: Its type in ggml's words: ``F32``, ``Q4_K`` …
        shape: As in transformers: the file has the axes the other way round.
        offset: First byte, from the start of the file.
        bytes: Bytes that it takes.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int

    @property
    def where(self) -> str:
        """The file and its name, for messages."""
        return f"{self.file}: {self.name}"

    @property
    def leaves(self) -> Sequence[Leaf]:
        """Itself."""
        return [self]

    @property
    def given(self) -> Given | None:
        """Its type, and its grid where engines have that."""
        if self.dtype in ("F32", "F16", "BF16", "F64"):
            return None
        bits = bits_of(self.dtype)
        if bits is None or len(self.shape) < 2:
            return Given(self.dtype)
        rows, columns = math.prod(self.shape[:-1]), self.shape[-1]
        name = self.name
        floats = has_minimums(self.dtype)
        grid = QuantizedRows(
            self._tile, rows, columns, bits, GROUP, not floats, name, float_zeros=floats
        )
        return Given(self.dtype, grid)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0 as float32, shape [stop - start, ...]."""
        return self.read_box(((start, stop), *((0, size) for size in self.shape[1:])))

    def read_box(self, box: Box) -> Float32:
        """The part of it that lies in ``box`` as float32; whole rows are decoded."""
        if len(self.shape) == 1:
            return self._floats(self._raw)[0, slice(*box[0])]
        return box_by_rows(box, self.shape, lambda a, b: self._floats(self._raw[a:b]))

    @cached_property
    def _raw(self) -> npt.NDArray[np.uint8]:
        """The bytes as rows of the last axis, mapped on first use."""
        raw = np.memmap(self.file, np.uint8, "r", self.offset, (self.bytes,))
        return raw.view(np.ndarray).reshape(math.prod(self.shape[:-1]), -1)

    def _floats(self, rows: npt.NDArray[np.uint8]) -> Float32:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        if bits_of(self.dtype) is not None and not has_minimums(self.dtype):
            tile = self._checked(read_tile(self.dtype, rows))
            return QuantizedRows(
                lambda start, stop: tile, len(rows), self.shape[-1], 8, GROUP, True, self.name
            ).floats(0, len(rows))
        if self.dtype in ("F32", "F16", "F64"):
            kind = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}[self.dtype]
            return np.ascontiguousarray(rows).view(kind).astype(np.float32)
        found: Float32 = dequantize(rows, GGMLQuantizationType[self.dtype])
        return found

    def _tile(self, start: int, stop: int) -> QuantizedTile:
        return self._checked(read_tile(self.dtype, self._raw[start:stop]))

    def _checked(self, tile: QuantizedTile) -> QuantizedTile:
        zeros = tile.zero_points
        if not np.isfinite(tile.scales).all() or (
            zeros is not None and not np.isfinite(zeros).all()
        ):
            raise InputError(
                "the weight holds NaN or infinities", where=self.where, hint="the file is damaged"
            )
        return tile
