"""A loaded engine: weights and KV pools in this process's memory, steps on its threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.adapter_pools import AdapterPools
from optc.backends.tvm.loaded.encoded import encoded_arguments
from optc.backends.tvm.loaded.logits_memory import LogitsMemory
from optc.backends.tvm.loaded.medusa import Heads
from optc.backends.tvm.loaded.pools import KVPools
from optc.backends.tvm.loaded.sample_staging import SampleStaging
from optc.backends.tvm.loaded.staging import Staging, StepInputs
from optc.backends.tvm.replay.recording import tensors_of
from optc.backends.tvm.replay.replay import Replays
from optc.backends.tvm.streamed.watching import Watch
from optc.backends.tvm.weights.weights_file import WeightFiles
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Executable, Float32, Int32, StepBatch, StepInterface
from optc.runtime.executable.sampling import SampleBatch, SampleResult


class TvmExecutable:
    """A loaded engine (`optc.runtime.executable.executable.Executable`). Use it from one thread.

    Args:
        ffi: The ``tvm_ffi`` package.
        functions: The engine's functions by name.
        spec: Limits and KV shape.
        weights: The mapped weights.
        weight_names: Those of the step's arguments, in order.
        replays: Replays steps, or watches them.
        head_replays: Replays the Medusa heads, if there are any.
    """

    def __init__(
        self,
        ffi: ModuleType,
        functions: dict[str, Callable[..., Any]],
        spec: StepInterface,
        weights: WeightFiles,
        weight_names: list[str],
        replays: Replays | Watch,
        head_replays: Replays | None = None,
    ) -> None:
        self.spec = spec
        self._ffi = ffi
        self._functions = functions
        self._step = functions["step"]
        self._replays = replays
        self._weights = weights
        self._weight_names = weight_names
        self._weight_tensors = self._tensors_of(weights)
        self._staging = Staging.on_host(spec, ffi.from_dlpack)
        self._pools = KVPools(spec, ffi.from_dlpack)
        self._adapters = AdapterPools(spec.adapters, ffi.from_dlpack)
        self._sampling = SampleStaging(ffi.from_dlpack)
        self._results: LogitsMemory | None = LogitsMemory(spec, ffi.from_dlpack)
        self._logits: Any = None
        self._fixed: tuple[Any, ...] | None = None
        self._hidden: Float32 | None = None
        self._head_replays = head_replays
        self._heads = self._new_heads()

    def _tensors_of(self, weights: WeightFiles) -> list[Any]:
        return [self._ffi.from_dlpack(weights.array(name)) for name in self._weight_names]

    def _new_heads(self) -> Heads | None:
        if not self.spec.accept_rates:
            return None
        run, wrap = self._functions["medusa"], self._ffi.from_dlpack
        if self._head_replays is not None:
            self._head_replays.clear()
        return Heads(run, self._weight_tensors, wrap, self._head_replays)

    def use_weights(self, folder: Path) -> None:
        """Compute with the weights in ``folder`` (`SwappingExecutable.use_weights`).

        Raises:
            ArtifactError: They are not there, or too few.
        """
        new, old = self._weights.of(folder), self._weights
        tensors = self._tensors_of(new)
        self._forget()
        self._weights, self._weight_tensors = new, tensors
        self._heads = self._new_heads()
        old.close()

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate zeroed pools; memory is taken as blocks are first written.

        Raises:
            InputError: ``block_size`` is not a multiple of ``spec.block_multiple``, or the
                number of groups differs, or the engine is closed.
        """
        if not self._weight_tensors:
            raise InputError("the engine is closed", where="allocate_kv")
        self._forget()
        self._pools.allocate(blocks_per_group, block_size)
        self._use_pools()

    def share_kv(self, owner: Executable) -> None:
        """Use pools of ``owner`` (`SharingExecutable.share_kv`).

        Raises:
            InputError: It has none, or is no engine of TVM for CPUs.
        """
        if not isinstance(owner, TvmExecutable):
            raise InputError("the target is of another backend", where="share_kv")
        self._forget()
        self._pools.share(owner._pools, self.spec.shared_kv)
        self._use_pools()

    def _use_pools(self) -> None:
        self._staging.set_blocks(self._pools.block_size, self._pools.scratch)
        self._fixed = (*self._weight_tensors, *self._pools.tensors, *self._adapters.tensors)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V], valid until the next call.

        Raises:
            InputError: The batch exceeds the engine's limits, its shapes do not fit together, or
                no KV pools were allocated.
        """
        inputs, fixed = self._arguments(batch)
        self._logits = self._hidden = None  # their memory is free for the new ones
        results = self._replays.step(inputs, fixed) or tensors_of(
            self._step(*inputs.tensors, *fixed)
        )
        self._logits = results[0]
        if self.spec.hidden_size:
            self._hidden = _array(results[1])
        if self._heads is not None:
            states = _array(results[1])
            whole = self.spec.hidden_size and self.spec.hidden_rows == "all"
            self._heads.note(states[batch.logit_rows] if whole else states)
        return _array(self._logits)

    def hidden_states(self) -> Float32:
        """Last hidden states of the last step (`HiddenExecutable.hidden_states`).

        Raises:
            InputError: The engine gives none, or no step was run.
        """
        if self._hidden is None:
            why = "no step was run" if self.spec.hidden_size else "the engine gives none"
            raise InputError(f"no hidden states: {why}", where="hidden_states")
        return self._hidden

    def guess(self, rows: Int32) -> Float32:
        """Logits [n, K, V] of the Medusa heads (`HeadedExecutable.guess`).

        Raises:
            InputError: There are no heads, or no step was run.
        """
        if self._heads is None:
            raise InputError("the engine has no heads", where="guess")
        return self._heads.guess(rows).reshape(len(rows), -1, self.spec.vocab_size)

    def sample(self, batch: SampleBatch) -> SampleResult:
        """Draw from rows of the last step's logits (`SamplingExecutable.sample`).

        Raises:
            InputError: There was no step.
        """
        if self._logits is None:
            raise InputError("no step has run", where="sample")
        tensors, result = self._sampling.fill(batch)
        self._functions["sample"](self._logits, *tensors)
        return result

    def arguments(self, batch: StepBatch) -> tuple[Any, ...]:
        """Arguments of the engine's function ``step``; raises as `step` does."""
        inputs, fixed = self._arguments(batch)
        return (*inputs.tensors, *fixed)

    def _arguments(self, batch: StepBatch) -> tuple[StepInputs, tuple[Any, ...]]:
        if self._fixed is None or self._results is None:
            raise InputError("no KV pools: call allocate_kv first", where="step")
        inputs = self._staging.fill(batch)
        return inputs, (*self._fixed, self._results.of(batch.logit_rows.size))

    def _forget(self) -> None:
        """Let go of all arguments but the weights, and of what was computed with them."""
        self._fixed = self._logits = self._hidden = None
        if self._heads is not None:
            self._heads.note(None)
        self._replays.clear()

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of ``src_slots`` [n] to ``dst_slots`` [n] in every layer of ``group``,
        one pair after the other.

        Raises:
            InputError: No pools were allocated, or a slot lies outside of them.
        """
        source, target = self._pools.check_slots(group, src_slots, dst_slots)
        slots = (self._ffi.from_dlpack(source), self._ffi.from_dlpack(target))
        self._functions[f"copy_kv_{group}"](*slots, *self._pools.of_group(group))

    def write_encoded(self, slots: Int32, states: Sequence[Float32]) -> None:
        """Put keys and values of an encoder's states into the last group's pools
        (`EncodedExecutable.write_encoded`).

        Raises:
            InputError: The engine attends to no encoder, no pools were allocated, a slot lies
                outside of them, or a shape does not fit.
        """
        group = len(self.spec.groups) - 1
        arrays = encoded_arguments(self.spec, slots, states)
        self._pools.check_slots(group, slots, slots)
        tensors = [self._ffi.from_dlpack(array) for array in arrays]
        self._functions["write_encoded"](*tensors, *self._pools.of_group(group))

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
        """Release the pools and the mapped weights; the engine cannot be used afterwards."""
        self._forget()
        self._weight_tensors.clear()
        self._pools.release()
        self._adapters.release()
        self._results = None
        self._weights.close()
        self._ffi.get_global_func("vm.builtin.memory_manager.clear")()


def _array(tensor: Any) -> Float32:
    array: Any = np.from_dlpack(tensor)
    result: Float32 = array
    return result
