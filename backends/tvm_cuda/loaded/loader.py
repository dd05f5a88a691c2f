"""Loading a CUDA engine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from optc.backends.tvm.engine_files import ENGINE_FILE, WEIGHTS_FILE, check_files
from optc.backends.tvm.loaded.loader import kernel_library, open_vm
from optc.backends.tvm.replay.recording import Recorder
from optc.backends.tvm.weights.weights_file import MappedWeights
from optc.backends.tvm_cuda.engine_data import read_data
from optc.backends.tvm_cuda.images import best_image, register_image
from optc.backends.tvm_cuda.loaded.arena import Arena
from optc.backends.tvm_cuda.loaded.capture import Capture
from optc.backends.tvm_cuda.loaded.device import Device
from optc.backends.tvm_cuda.loaded.executable import CudaExecutable
from optc.backends.tvm_cuda.loaded.graphs import Graphs
from optc.backends.tvm_cuda.loaded.results import Results
from optc.backends.tvm_cuda.loaded.runtime import open_cudart, start_runtime
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.machine import this_machine

#: Device types CUDA and CPU (where shapes are computed), device 0, pooled allocators.
_CUDA_POOLED = (2, 0, 2, 1, 0, 2)


def load_engine(folder: Path, spec: StepInterface, data: dict[str, Any]) -> CudaExecutable:
    """Load the engine in ``folder`` that `optc.backends.tvm_cuda.build.build_engine` wrote, on the
    first CUDA device (of those that ``CUDA_VISIBLE_DEVICES`` names).

    Raises:
        UnavailableError: No driver, device or CUDA runtime library, no code for the device, or
            tvm_ffi is of another release.
        ArtifactError: A file is missing, truncated or cannot be opened, or another optc compiled
            the engine.
    """
    found = read_data(data)
    shared = folder / found.shared  # another engine's, with these weights among its own
    mine = (ENGINE_FILE, *found.libraries)
    check_files(*(folder / name for name in mine), shared / WEIGHTS_FILE)
    ffi = start_runtime(folder, found.ffi)
    sm = best_image([*found.images], this_machine().sm[0])
    register_image(found.cuda.digest, folder / found.images[sm])
    engine = folder / ENGINE_FILE
    vm = open_vm(ffi, engine, _CUDA_POOLED)
    names = ["step", *(f"copy_kv_{g}" for g in range(len(spec.groups)))]
    device = Device(ffi)
    mapped = MappedWeights(shared / WEIGHTS_FILE, found.weights)
    weights = [device.copy_of(mapped.array(p.name)) for p in found.weights]
    mapped.close()
    functions = {name: vm[name] for name in names}
    results = Results(device, spec, found.cuda.range_values)
    graphs = _graphs(ffi, device, engine, found.cuda.kernels[0])
    return CudaExecutable(device, functions, spec, weights, results, graphs)


def _graphs(ffi: ModuleType, device: Device, engine: Path, kernel: str) -> Graphs:
    library = kernel_library(ffi, engine, kernel)
    return Graphs(
        Arena(device),
        lambda: Recorder(open_vm(ffi, engine, _CUDA_POOLED), library),
        lambda: Capture(ffi, open_cudart(), device.handle),
        library.get_function,
    )
