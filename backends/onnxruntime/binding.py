"""Calls of a model on slots: inputs and outputs are bound once and stay where they are.

ONNX Runtime keeps no reference to memory that it is given by address: `Bindings` holds all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optc.backends.onnxruntime.calls import Call
from optc.backends.onnxruntime.slots import Slots
from optc.runtime.executable.executable import Float32, StepInterface

#: Element type of each input by ONNX Runtime's name of it.
TYPES: dict[str, np.dtype[Any]] = {
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
}


@dataclass
class _Bound:
    """A binding of ONNX Runtime to some slots, and what is bound to it now."""

    binding: Any
    shape: tuple[int, int, int] | None = None


class Bindings:
    """Runs a model of the slot form on any run of slots.

    Args:
        session: ``onnxruntime.InferenceSession``.
        spec: Its limits.
        slots: Allocated; they must stay so while this object is used.
    """

    def __init__(self, session: Any, spec: StepInterface, slots: Slots) -> None:
        self._session = session
        self._run = session.run_with_iobinding
        self._slots = slots
        #: Inputs are copied to the device when they are bound, not when the model runs.
        self._copies = any(cache.memory.device != "cpu" for cache in slots.caches)
        self._vocab = spec.vocab_size
        self._bound: dict[tuple[int, int], _Bound] = {}
        sizes = {
            "tokens": max(spec.max_rows, slots.count),
            "positions": max(spec.max_rows, slots.count),
            "write_indices": slots.count,
            "logit_index": max(spec.max_logit_rows, slots.count),
            "seqlens_k": slots.count,
            "total_sequence_length": 1,
        }
        types = {value.name: TYPES[value.type] for value in session.get_inputs()}
        self._inputs = {n: np.zeros(s, types[n]) for n, s in sizes.items() if n in types}
        self._logits = np.zeros((spec.max_logit_rows + slots.count, spec.vocab_size), np.float32)

    @property
    def logits(self) -> Float32:
        """[rows, V] the logits of all calls of a step, where `run` was told to put them."""
        return self._logits

    def run(self, call: Call, place: int) -> int:
        """Run ``call``; its logits go to row ``place`` of `logits` and on, slot by slot. Returns
        how many rows those are."""
        count, rows = call.tokens.shape
        wanted = len(call.wanted)
        if count == rows == 1:
            self._fill_one(call)
        else:
            self._fill(call)
        key = (call.first, count)
        bound = self._bound.get(key) or self._bound.setdefault(key, self._bind_slots(*key))
        shape = (rows, wanted, place)
        if bound.shape != shape or self._copies:
            self._bind_rows(bound.binding, count, shape)
            bound.shape = shape
        self._run(bound.binding)
        return count * wanted

    def _fill_one(self, call: Call) -> None:
        """The inputs of a single row."""
        start = int(call.starts[0])
        values = {
            "tokens": call.tokens[0, 0],
            "logit_index": 0,
            "total_sequence_length": start + 1,
        }
        for name, buffer in self._inputs.items():
            buffer[0] = values.get(name, start)

    def _fill(self, call: Call) -> None:
        count, rows = call.tokens.shape
        ends = call.starts + rows
        wanted = np.broadcast_to(call.wanted, (count, len(call.wanted)))
        values: dict[str, Any] = {
            "tokens": call.tokens,
            "positions": call.starts[:, None] + np.arange(rows),
            "write_indices": call.starts,
            "logit_index": wanted,
            "seqlens_k": ends - 1,
            "total_sequence_length": ends.max(),
        }
        for name, buffer in self._inputs.items():
            flat = np.reshape(values[name], -1)
            buffer[: flat.size] = flat

    def _bind_slots(self, first: int, count: int) -> _Bound:
        """A binding whose keys and values are the slots themselves, read and written in place."""
        binding = self._session.io_binding()
        for cache in self._slots.caches:
            memory = cache.memory
            shape = (count, *memory.shape[1:])
            where = (memory.device, 0, memory.dtype, shape, memory.address(first))
            binding.bind_input(cache.past, *where)
            binding.bind_output(cache.present, *where)
        return _Bound(binding)

    def _bind_rows(self, binding: Any, count: int, shape: tuple[int, int, int]) -> None:
        rows, wanted, place = shape
        shapes: dict[str, tuple[int, ...]] = {
            "tokens": (count, rows),
            "positions": (count, rows),
            "logit_index": (count, wanted),
            "total_sequence_length": (),
        }
        for name, buffer in self._inputs.items():
            dims = shapes.get(name, (count,))
            binding.bind_input(name, "cpu", 0, buffer.dtype, dims, buffer.ctypes.data)
        out = self._logits[place:]
        dims = (count, wanted, self._vocab)
        binding.bind_output("logits", "cpu", 0, out.dtype, dims, out.ctypes.data)
