"""Loading an engine and stepping it: needs NumPy, tvm_ffi and the artifact's own files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.adapter_pools import AdapterPools
from optc.backends.tvm.engine_files import ENGINE_FILE, WEIGHTS_FILE, check_files
from optc.backends.tvm.heads import Heads
from optc.backends.tvm.pools import KVPools
from optc.backends.tvm.recording import Recorder, tensors_of
from optc.backends.tvm.replay import REPLAY, Replays
from optc.backends.tvm.runtime_libs import LIBRARIES, check_ffi_version, import_ffi, open_runtime
from optc.backends.tvm.sample_staging import SampleStaging
from optc.backends.tvm.staging import Staging, StepInputs
from optc.backends.tvm.thread_pool import load_library, want_threads
from optc.backends.tvm.weights_file import MappedWeights, placed_from_json
from optc.errors import ArtifactError, InputError, UnavailableError
from optc.runtime.adapters.spec import ModuleWeights
from optc.runtime.executable import (
    EngineSpec,
    Float32,
    Int32,
    SampleBatch,
    SampleResult,
    StepBatch,
)
from optc.target import Target, host_features

#: Device type CPU, device 0, the C library's allocator.
_CPU_UNPOOLED = (1, 0, 1)
#: The CPU with TVM's pool, and without for results (`optc.backends.tvm.result_memory`).
_CPU_POOLED = (1, 0, 2, *_CPU_UNPOOLED)


class TvmExecutable:
    """A loaded engine (`optc.runtime.executable.Executable`). Use it from one thread."""

    def __init__(
        self,
        ffi: ModuleType,
        functions: dict[str, Callable[..., Any]],
        spec: EngineSpec,
        weights: MappedWeights,
        weight_names: list[str],
        replays: Replays | None = None,
        head_replays: Replays | None = None,
    ) -> None:
        self.spec = spec
        self._ffi = ffi
        self._functions = functions
        self._step = functions["step"]
        self._replays = replays
        self._weights = weights
        self._weight_tensors = [ffi.from_dlpack(weights.array(name)) for name in weight_names]
        self._staging = Staging(spec, ffi.from_dlpack)
        self._pools = KVPools(spec, ffi.from_dlpack)
        self._adapters = AdapterPools(spec.adapters, ffi.from_dlpack)
        self._sampling = SampleStaging(ffi.from_dlpack)
        self._logits: Any = None
        self._fixed: tuple[Any, ...] | None = None
        self._heads: Heads | None = None
        if spec.accept_rates:
            run, tensors = functions["medusa"], self._weight_tensors
            self._heads = Heads(run, tensors, ffi.from_dlpack, head_replays)

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
        self._staging.set_blocks(block_size, self._pools.scratch)
        self._fixed = (*self._weight_tensors, *self._pools.tensors, *self._adapters.tensors)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V], valid until the next call.

        Raises:
            InputError: The batch exceeds the engine's limits, its shapes do not fit together, or
                no KV pools were allocated.
        """
        inputs, fixed = self._arguments(batch)
        self._logits = None  # their memory is free for the new ones
        replayed = None if self._replays is None else self._replays.step(inputs, fixed)
        results = replayed or tensors_of(self._step(*inputs.tensors, *fixed))
        self._logits = results[0]
        if self._heads is not None:
            self._heads.note(_array(results[1]))
        return _array(self._logits)

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
        if self._fixed is None:
            raise InputError("no KV pools: call allocate_kv first", where="step")
        return self._staging.fill(batch), self._fixed

    def _forget(self) -> None:
        """Let go of all arguments but the weights, and of what was computed with them."""
        self._fixed = self._logits = None
        if self._heads is not None:
            self._heads.note(None)
        if self._replays is not None:
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
        self._weights.close()
        self._ffi.get_global_func("vm.builtin.memory_manager.clear")()


def _array(tensor: Any) -> Float32:
    array: Any = np.from_dlpack(tensor)
    result: Float32 = array
    return result


def load_engine(
    folder: Path, spec: EngineSpec, data: dict[str, Any], threads: int
) -> TvmExecutable:
    """Load the engine in ``folder`` that `optc.backends.tvm.build.build_engine` wrote.

    Args:
        folder: Holds the engine's files.
        spec: As the build gave it.
        data: The build's ``backend_data``.
        threads: Threads of every kernel.

    Raises:
        UnavailableError: The CPU lacks features of the engine, or tvm_ffi is of another release.
        ArtifactError: A file is missing, truncated or cannot be opened.
    """
    shared = folder / data.get("shared", ".")  # another engine's, with these weights among its own
    check_files(folder / ENGINE_FILE, *(shared / name for name in (WEIGHTS_FILE, *LIBRARIES)))
    ffi = start_runtime(shared, data, threads)
    placed = [placed_from_json(item) for item in data["weights"]]
    weights = MappedWeights(shared / WEIGHTS_FILE, placed)
    engine = folder / ENGINE_FILE
    devices = vm_devices(data)
    vm = open_vm(ffi, engine, devices)
    names = ["step", *(f"copy_kv_{g}" for g in range(len(spec.groups)))]
    if spec.accept_rates:
        names.append("medusa")
    if spec.samples:
        names.append("sample")
    functions = {name: vm[name] for name in names}
    weight_names = [p.tensor.name for p in placed]
    replays = _replays(ffi, engine, devices, "step")
    head_replays = _replays(ffi, engine, devices, "medusa") if spec.accept_rates else None
    return TvmExecutable(ffi, functions, spec, weights, weight_names, replays, head_replays)


def _replays(
    ffi: ModuleType, engine: Path, devices: tuple[int, ...], function: str
) -> Replays | None:
    """Of one function; None where the engine was compiled before it could replay steps."""
    library = kernel_library(ffi, engine, REPLAY)
    if library is None:
        return None
    run = library.get_function(REPLAY)
    return Replays(
        ffi, engine, run, lambda: Recorder(open_vm(ffi, engine, devices), library, function)
    )


def kernel_library(ffi: ModuleType, engine: Path, kernel: str) -> Any:
    """The module of ``engine`` that holds its kernels by name; None if ``kernel`` is not there."""
    for library in load_library(ffi, engine).imports:
        if library.implements_function(kernel):
            return library
    return None


def start_runtime(folder: Path, data: dict[str, Any], threads: int) -> ModuleType:
    """TVM's runtime, ``threads`` for what the calling thread loads next; returns ``tvm_ffi``.

    Raises:
        UnavailableError, ArtifactError: As `load_engine`.
    """
    _check_cpu(tuple(data["features"]))
    check_ffi_version(data["ffi"])
    ffi = import_ffi()
    _set_threads(threads)
    open_runtime(folder)
    want_threads(threads)
    return ffi


def _check_cpu(features: tuple[str, ...]) -> None:
    missing = Target("", "cpu", features).missing_on(host_features())
    if missing:
        raise UnavailableError(
            f"this CPU lacks {', '.join(missing)}, which the engine was compiled for",
            where="tvm engine",
            hint="compile the artifact for this machine: --target native or x86-64-v3",
        )


def _set_threads(threads: int) -> None:
    """Settings that TVM reads when it starts threads, for engines without a pool of their own.

    Workers are not pinned: replicas on one machine would all be pinned to the same cores.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")


def vm_devices(data: dict[str, Any]) -> tuple[int, ...]:
    """Devices of the virtual machines of a CPU engine with the build's ``data``; one compiled
    before its results had memory of their own has none in a pool."""
    return _CPU_POOLED if data.get("pooled") else _CPU_UNPOOLED


def open_vm(ffi: ModuleType, engine: Path, devices: tuple[int, ...]) -> Any:
    """A virtual machine of its own that runs the functions of ``engine``.

    ``devices`` are triples of device type, device and allocator.

    Raises:
        ArtifactError: The file is damaged.
    """
    try:
        vm = load_library(ffi, engine)["vm_load_executable"]()
    except (RuntimeError, AttributeError, OSError) as error:
        raise ArtifactError(
            f"cannot open the engine: {str(error).strip().splitlines()[-1]}",
            where=engine.name,
            hint="the file is damaged: compile or copy the artifact again",
        ) from error
    vm["vm_initialization"](*devices)
    return vm
