"""A loaded CUDA engine: weights and KV pools on the device, everything else passes through host
memory. Needs NumPy, tvm_ffi and the artifact's own files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.staging import Staging
from optc.backends.tvm_cuda.loaded.adapters import DeviceAdapters
from optc.backends.tvm_cuda.loaded.device import Device
from optc.backends.tvm_cuda.loaded.graphs import Graphs
from optc.backends.tvm_cuda.loaded.host_arrays import HostArrays
from optc.backends.tvm_cuda.loaded.packed_inputs import PackedInputs
from optc.backends.tvm_cuda.loaded.pools import DevicePools
from optc.backends.tvm_cuda.loaded.results import Results
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, Int32, StepBatch, StepInterface

#: Least width of block tables.
_LEAST_BLOCKS = 8


class CudaExecutable:
    """A loaded engine (`optc.runtime.executable.executable.Executable`). Use it from one thread.

    Args:
        device: Where it runs.
        functions: The engine's functions by name.
        spec: Limits and KV shape.
        weights: On the device, in the order of the step's arguments.
        results: Memory for logits.
        graphs: Launches steps that were captured.

    Attributes:
        graphs: ``graphs.enabled = False`` runs every step kernel by kernel.
    """

    def __init__(
        self,
        device: Device,
        functions: dict[str, Callable[..., Any]],
        spec: StepInterface,
        weights: list[Any],
        results: Results,
        graphs: Graphs,
    ) -> None:
        self.spec = spec
        self._device = device
        self._functions = functions
        self._weights = weights
        self._results = results
        self.graphs = graphs
        self._host = HostArrays(device, spec.vocab_size, spec.max_logit_rows)
        self._staging = Staging(spec, partial(PackedInputs, device))
        self._pools = DevicePools(spec, device)
        self._adapters = DeviceAdapters(spec.adapters, device)

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate (or replace) the pools.

        Raises:
            InputError: ``block_size`` is not a multiple of ``spec.block_multiple``, or the
                number of groups differs, or the engine is closed.
        """
        if not self._weights:
            raise InputError("the engine is closed", where="allocate_kv")
        self.graphs.clear()
        self._pools.allocate(blocks_per_group, block_size)
        self._staging.set_blocks(block_size, self._pools.scratch)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V].

        Raises:
            InputError: The batch exceeds the engine's limits, its shapes do not fit together, or
                no KV pools were allocated.
        """
        if not self._pools.tensors:
            raise InputError("no KV pools: call allocate_kv first", where="step")
        inputs = self._staging.fill(_widened(batch))
        self._device.copy(*inputs.mirror)
        rows = batch.logit_rows.size
        if self._results.reserve(rows):
            self.graphs.clear()
        ranges, logits = self._results.of(rows)
        fixed = (*self._weights, *self._pools.tensors, *self._adapters.tensors, ranges, logits)
        if not self.graphs.step(inputs, (*inputs.tensors, *fixed)):
            self._functions["step"](*inputs.tensors, *fixed)
        result = self._host.take(rows)
        self._device.download(logits, result)
        return result

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of ``src_slots`` [n] to ``dst_slots`` [n] in every layer of ``group``,
        one pair after the other.

        Raises:
            InputError: No pools were allocated, or a slot lies outside of them.
        """
        self._pools.check_slots(group, src_slots, dst_slots)
        if src_slots.size:
            slots = [self._device.copy_of(slots) for slots in (src_slots, dst_slots)]
            self._functions[f"copy_kv_{group}"](*slots, *self._pools.of_group(group))

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of blocks [n] in all layers of ``group``."""
        return self._pools.read(group, blocks)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace the contents of blocks [n] by what `read_blocks` gave."""
        self._pools.write(group, blocks, data)

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Set the LoRA adapter in ``slot`` (`Executable.write_adapter`).

        Raises:
            InputError: No such slot, or a shape does not fit.
        """
        self._adapters.write(slot, modules)

    def close(self) -> None:
        """Release pools and weights; the engine cannot be used afterwards."""
        self.graphs.clear()
        self._weights.clear()
        self._pools.release()
        self._adapters.release()


def _widened(batch: StepBatch) -> StepBatch:
    """The step with block tables of a power of two of columns, so that few widths come again."""
    groups, sequences, blocks = batch.block_tables.shape
    width = max(_LEAST_BLOCKS, 1 << (blocks - 1).bit_length())
    if width == blocks:
        return batch
    tables = np.full((groups, sequences, width), -1, np.int32)
    tables[:, :, :blocks] = batch.block_tables
    return replace(batch, block_tables=tables)
