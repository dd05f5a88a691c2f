"""A recorded step (`optc.backends.tvm.replay.replay`) as a list of calls in memory that stays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.input_memory import aligned
from optc.backends.tvm.replay.recording import Recording

#: A DLTensor (DLPack's C structure), and a TVMFFIAny that points to one.
_TENSOR = np.dtype(
    {
        "names": ["data", "device", "ndim", "code", "bits", "lanes", "shape", "strides"],
        "formats": ["u8", "i4", "i4", "u1", "u1", "u2", "u8", "u8"],
        "offsets": [0, 8, 16, 20, 21, 22, 24, 32],
        "itemsize": 48,
    }
)
_ARGUMENT = np.dtype([("kind", "i8"), ("pointer", "u8")])
_CPU, _TENSOR_POINTER = 1, 7
#: Place of a tensor that keeps its own memory: inputs, weights, pools.
_OUTSIDE = -1

Int64 = npt.NDArray[np.int64]


class NotReplayableError(Exception):
    """A step that only the virtual machine can run; the message says why."""


@dataclass(frozen=True)
class _Kind:
    """Element type: DLPack's code, bits and lanes."""

    code: int
    bits: int
    lanes: int


@dataclass(frozen=True)
class Use:
    """An argument of a recorded call: its address, shape and element type."""

    start: int
    shape: tuple[int, ...]
    kind: _Kind

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + -(-math.prod(self.shape) * self.kind.bits * self.kind.lanes // 8)


@dataclass
class Plan:
    """A list of calls.

    Attributes:
        table: int64 [calls, 3]: a function, its arguments and their number.
        results: Where the calls leave the step's results, float32; None for one in memory that
            the step was given.
        tensors: The DLTensors that the arguments point to.
        dims: Their shapes and strides.
        arguments: The arguments that the table points to.
        inputs: Of each of the step's own tensors, in order, its copies among ``tensors`` and where
            their dimensions lie.
    """

    table: Int64
    results: list[npt.NDArray[np.float32] | None]
    tensors: npt.NDArray[Any]
    dims: Int64
    arguments: npt.NDArray[Any]
    inputs: list[tuple[Int64, Int64]]

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        """Let the calls read other input tensors: at other places, block tables of other width."""
        for tensor, (places, dims) in zip(inputs, self.inputs, strict=True):
            shape = tuple(tensor.shape)
            self.tensors["data"][places] = tensor.data_ptr()
            self.dims[dims[:, None] + np.arange(2 * len(shape))] = (*shape, *_strides(shape))


@dataclass
class PlanMemory:
    """Memory for what steps compute in between; all plans share it.

    Tensors of a step that have one address have one buffer here. Buffers are numbered as they
    appear in a step: in the same order whatever its shape, because the compiler planned them.

    Attributes:
        address_of: Gives the address of a kernel's packed function by its name.
    """

    address_of: Callable[[str], int]
    _buffers: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    _pattern: list[int] = field(default_factory=list)

    def plan(
        self, recording: Recording, inputs: Sequence[Any], fixed: Sequence[Any]
    ) -> tuple[Plan, bool]:
        """The plan of a step that has just run.

        Args:
            recording: Of the step.
            inputs: The step's own tensors.
            fixed: Weights, pools and given memory. These and the inputs keep their memory.

        Returns:
            The plan, and whether buffers moved, which makes earlier plans invalid.

        Raises:
            NotReplayableError: Not all of the step are kernels on tensors, tensors overlap in
                part, or the buffers are others than those of the steps before.
        """
        uses = uses_of(recording)
        places = self._places(uses, {tensor.data_ptr() for tensor in (*inputs, *fixed)})
        moved = self._reserve(uses, places)
        addresses = np.array([use.start for use in uses], np.uint64)
        for index, (use, place) in enumerate(zip(uses, places, strict=True)):
            if place != _OUTSIDE:
                addresses[index] = self._buffers[place].ctypes.data
                # constants of the virtual machine are read from here as well
                ctypes.memmove(int(addresses[index]), use.start, use.end - use.start)
        tensors, dims, first = _tensors(uses, addresses)
        arguments = np.zeros(len(uses), _ARGUMENT)
        arguments["kind"] = _TENSOR_POINTER
        arguments["pointer"] = tensors.ctypes.data + np.arange(len(uses)) * _TENSOR.itemsize
        those = [np.flatnonzero(addresses == tensor.data_ptr()) for tensor in inputs]
        table = self._table(recording, arguments)
        results = [self._result(one, uses, places) for one in recording.results]
        found = [(places_of, first[places_of]) for places_of in those]
        return Plan(table, results, tensors, dims, arguments, found), moved

    def _places(self, uses: Sequence[Use], given: set[int]) -> list[int]:
        """The buffer of each tensor."""
        check_apart(uses)
        numbers: dict[int, int] = {}
        places = [
            _OUTSIDE if use.start in given else numbers.setdefault(use.start, len(numbers))
            for use in uses
        ]
        if self._pattern and places != self._pattern:
            raise NotReplayableError("its buffers are others than those of the steps before")
        self._pattern = places
        return places

    def _reserve(self, uses: Sequence[Use], places: Sequence[int]) -> bool:
        """Make the buffers large enough; whether one moved."""
        sizes = [0] * (max(places, default=_OUTSIDE) + 1)
        for use, place in zip(uses, places, strict=True):
            if place != _OUTSIDE:
                sizes[place] = max(sizes[place], use.end - use.start)
        moved = False
        for place, size in enumerate(sizes):
            if place == len(self._buffers):
                self._buffers.append(_buffer(size))
            elif self._buffers[place].size < size:
                self._buffers[place] = _buffer(size)
                moved = True
        return moved

    def _table(self, recording: Recording, arguments: npt.NDArray[Any]) -> Int64:
        counts = np.array([len(call.arguments) for call in recording.calls])
        first = np.cumsum(counts) - counts
        table = np.empty((len(counts), 3), np.int64)
        table[:, 0] = [self.address_of(call.name) for call in recording.calls]
        table[:, 1] = arguments.ctypes.data + first * _ARGUMENT.itemsize
        table[:, 2] = counts
        return table

    def _result(
        self, result: Any, uses: Sequence[Use], places: Sequence[int]
    ) -> npt.NDArray[np.float32] | None:
        start = result.data_ptr()
        for use, place in zip(uses, places, strict=True):
            if use.start != start:
                continue
            if place == _OUTSIDE:
                return None
            shape = tuple(result.shape)
            count = math.prod(shape)
            return self._buffers[place][: 4 * count].view(np.float32).reshape(shape)
        raise NotReplayableError("its result is no kernel's output")


def _buffer(size: int) -> npt.NDArray[np.uint8]:
    """Aligned bytes, a power of two of them, so that few shapes make a buffer move."""
    return aligned(max(1 << (size - 1).bit_length(), 64) // 4).view(np.uint8)


def uses_of(recording: Recording) -> list[Use]:
    """All arguments of all calls in order.

    Raises:
        NotReplayableError: One is no tensor, or there is more than kernels.
    """
    if not recording.complete:
        raise NotReplayableError("the virtual machine itself computes a part of it")
    kinds: dict[tuple[str, int], _Kind] = {}  # asking a tensor takes longer than all the rest
    uses = []
    for call in recording.calls:
        for index, tensor in enumerate(call.arguments):
            if not hasattr(tensor, "data_ptr"):
                raise NotReplayableError(f"an argument is of type {type(tensor).__name__}")
            kind = kinds.get((call.name, index))
            if kind is None:
                dtype = tensor.dtype
                kind = _Kind(dtype.type_code, dtype.bits, dtype.lanes)
                kinds[call.name, index] = kind
            uses.append(Use(tensor.data_ptr(), tuple(tensor.shape), kind))
    return uses


def check_apart(uses: Sequence[Use]) -> None:
    """Check that tensors start at the same address or share no byte.

    Raises:
        NotReplayableError: Two overlap in part.
    """
    ends: dict[int, int] = {}
    for use in uses:
        ends[use.start] = max(ends.get(use.start, 0), use.end)
    for (_, end), (start, _) in pairwise(sorted(ends.items())):
        if end > start:
            raise NotReplayableError("two tensors overlap in part")


def _tensors(
    uses: Sequence[Use], addresses: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[Any], Int64, Int64]:
    """DLTensors at ``addresses``, their shapes and strides, and where each tensor's begin."""
    tensors = np.zeros(len(uses), _TENSOR)
    tensors["data"], tensors["device"] = addresses, _CPU
    ndim = np.array([len(use.shape) for use in uses], np.int64)
    tensors["ndim"] = ndim
    for name in ("code", "bits", "lanes"):
        tensors[name] = [getattr(use.kind, name) for use in uses]
    dims = np.array([d for use in uses for d in (*use.shape, *_strides(use.shape))], np.int64)
    first = 2 * (np.cumsum(ndim) - ndim)
    tensors["shape"] = dims.ctypes.data + 8 * first
    tensors["strides"] = dims.ctypes.data + 8 * (first + ndim)
    return tensors, dims, first


@cache
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a compact tensor."""
    return tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))
