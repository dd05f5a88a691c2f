"""Runs planned calls on an engine: shapes, addresses, uploads, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from optc.backends.tensorrt.limits import Limits
from optc.backends.tensorrt.runtime.plan import DECODE, Call
from optc.backends.tensorrt.runtime.slots import Slots
from optc.errors import UnavailableError
from optc.runtime.executable.executable import Float32
from optc.system.hardware.cuda_device import Device, Graph

#: Shapes of decode calls that are kept as graphs.
_MAX_GRAPHS = 64
#: Inputs of a call besides the caches, and the type of each.
_INPUTS: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype(np.int32),
    "positions": np.dtype(np.int32),
    "write_indices": np.dtype(np.int64),
    "logit_index": np.dtype(np.int64),
}


class Context(Protocol):
    """The part of TensorRT's ``IExecutionContext`` that is used."""

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        """Shape of an input in the next run."""
        ...

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Set the address of an input or output."""
        ...

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Put the run on a stream."""
        ...


class ProfileRunner:
    """One profile of an engine, with an execution context and buffers of its own.

    Args:
        context: With the profile set.
        device: Where it runs.
        limit: The profile's largest call.
        vocab_size: V.
        inputs: Names that the engine has; positions may be missing.
        graphs: Whether calls of a known shape are captured and replayed here.
    """

    def __init__(
        self,
        context: Context,
        device: Device,
        limit: Limits,
        vocab_size: int,
        inputs: Sequence[str],
        *,
        graphs: bool,
    ) -> None:
        self._context, self._device, self._vocab_size = context, device, vocab_size
        self._graphs = graphs
        self._known: dict[tuple[int, ...], Graph | None] = {}
        sizes = {
            "tokens": limit.batch * limit.rows,
            "positions": limit.batch * limit.rows,
            "write_indices": limit.batch,
            "logit_index": limit.batch * limit.logits,
        }
        self._buffers = {
            name: device.allocate(sizes[name] * dtype.itemsize)
            for name, dtype in _INPUTS.items()
            if name in inputs
        }
        self._logits = device.allocate(limit.batch * limit.logits * vocab_size * 4)

    def run(self, call: Call, slots: Slots) -> Float32:
        """Put a call on the stream; logits [B, R, V], which are there after `Device.wait`."""
        for name, address in self._buffers.items():
            array = getattr(call, name)
            self._device.upload(address, np.ascontiguousarray(array, _INPUTS[name]))
        self._launch(call, slots)
        batch, _, rows = call.shape
        logits: Float32 = np.empty((batch, rows, self._vocab_size), np.float32)
        self._device.download(logits, self._logits)
        return logits

    def forget_graphs(self) -> None:
        """Drop captured graphs: they hold the addresses of pools."""
        for graph in self._known.values():
            if graph is not None:
                graph.close()
        self._known.clear()

    def close(self) -> None:
        """Give graphs and buffers back."""
        self.forget_graphs()
        for address in (*self._buffers.values(), self._logits):
            self._device.free(address)

    def _launch(self, call: Call, slots: Slots) -> None:
        """Run plainly, or by a graph: captured at the second call of a shape, for at the first one
        TensorRT may still load kernels."""
        key = (call.base, *call.shape)
        if not self._graphs or (key not in self._known and len(self._known) >= _MAX_GRAPHS):
            self._enqueue(call, slots)
            return
        if key not in self._known:
            self._known[key] = None
            self._enqueue(call, slots)
            return
        graph = self._known[key]
        if graph is None:
            graph = self._device.capture(lambda: self._enqueue(call, slots))
            self._known[key] = graph
        graph.launch()

    def _enqueue(self, call: Call, slots: Slots) -> None:
        batch = call.shape[0]
        for name, address in self._buffers.items():
            self._bind(name, address, getattr(call, name).shape)
        for pool in slots.pools:
            address = pool.address + call.base * pool.slot_bytes
            self._bind(f"past_{pool.name}", address, (batch, pool.heads, slots.length, pool.width))
            self._bind(f"present_{pool.name}", address)
        self._bind("logits", self._logits)
        if not self._context.execute_async_v3(self._device.stream):
            raise _refused("the run")

    def _bind(self, name: str, address: int, shape: tuple[int, ...] | None = None) -> None:
        if shape is not None and not self._context.set_input_shape(name, shape):
            raise _refused(f"the shape {shape} of {name}")
        if not self._context.set_tensor_address(name, address):
            raise _refused(f"the address of {name}")


def _refused(what: str) -> UnavailableError:
    return UnavailableError(
        f"TensorRT refused {what}", where="tensorrt engine", hint="its log says why"
    )


def uses_graphs(profile: int, native: bool) -> bool:
    """True if calls of a profile are captured by us: where TensorRT does not do so itself, and only
    decode calls, whose shapes come again."""
    return profile == DECODE and not native


def contexts_of(engine: Any, device: Device, count: int, config: Any) -> list[Context]:
    """An execution context for each profile.

    Raises:
        UnavailableError: TensorRT makes none, mostly for lack of memory.
    """
    made: list[Context] = []
    for index in range(count):
        arguments = () if config is None else (config,)
        context = engine.create_execution_context(*arguments)
        if context is None or not context.set_optimization_profile_async(index, device.stream):
            raise _refused(f"a context for profile {index}")
        made.append(context)
    device.wait()
    return made
