"""Inputs and results of the engine's function ``sample`` in aligned memory of the engine's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.input_memory import aligned
from optc.runtime.executable.sampling import SampleBatch, SampleResult

#: Sets of sizes whose buffers are kept; decoding meets few of them again and again.
_CACHED = 32

Array = npt.NDArray[Any]


class _Buffers(NamedTuple):
    inputs: tuple[Array, ...]
    result: SampleResult
    tensors: list[Any]


class SampleStaging:
    """Copies a `SampleBatch` to where the kernel reads it, and holds what it writes.

    Args:
        wrap: From an array to a tensor of the engine (DLPack).
    """

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._buffers: dict[tuple[int, ...], _Buffers] = {}

    def fill(self, batch: SampleBatch) -> tuple[list[Any], SampleResult]:
        """The tensors behind the logits, in order, holding ``batch``; where the results will be."""
        inputs: tuple[Array, ...] = (
            batch.records,
            batch.tokens,
            batch.bias_ids,
            batch.biases,
            batch.masks,
        )
        # Histories grow by a token a step: buffers of powers of two serve many steps.
        sizes = tuple(1 << (len(array) - 1).bit_length() for array in inputs[1:])
        key = (len(batch.records), *sizes, batch.top)
        buffers = self._buffers.get(key)
        if buffers is None:
            buffers = self._make(batch, sizes)
            if len(self._buffers) >= _CACHED:
                self._buffers.pop(next(iter(self._buffers)))
            self._buffers[key] = buffers
        for buffer, array in zip(buffers.inputs, inputs, strict=True):
            np.copyto(buffer[: len(array)], array)
        return buffers.tensors, buffers.result

    def _make(self, batch: SampleBatch, sizes: tuple[int, ...]) -> _Buffers:
        rows, fields = batch.records.shape
        tokens, biases, _, masks = sizes
        records = _buffer((rows, fields), np.int64)
        inputs = (
            records,
            _buffer((tokens,), np.int32),
            _buffer((biases,), np.int32),
            _buffer((biases,), np.float32),
            _buffer((masks, batch.masks.shape[1]), np.uint32),
        )
        result = SampleResult(
            _buffer((rows,), np.int32),
            _buffer((rows,), np.int32),
            _buffer((rows,), np.float64),
            _buffer((rows, batch.top), np.int32),
            _buffer((rows, batch.top), np.float64),
        )
        arrays = (records, records.view(np.float64), *inputs[1:], *result)
        return _Buffers(inputs, result, [self._wrap(array) for array in arrays])


def _buffer(shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize // 4
    return aligned(count).view(dtype).reshape(shape)
