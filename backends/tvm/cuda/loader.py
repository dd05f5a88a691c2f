"""Loading a CUDA engine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from optc.backends.tvm.cuda.arena import Arena
from optc.backends.tvm.cuda.capture import Capture
from optc.backends.tvm.cuda.device import Device
from optc.backends.tvm.cuda.executable import CudaExecutable
from optc.backends.tvm.cuda.graphs import Graphs
from optc.backends.tvm.cuda.images import best_image, register_image
from optc.backends.tvm.cuda.results import Results
from optc.backends.tvm.cuda.runtime import RUNTIME_LIBRARY, open_cudart, start_runtime
from optc.backends.tvm.engine_files import ENGINE_FILE, WEIGHTS_FILE, check_files
from optc.backends.tvm.loader import kernel_library, open_vm
from optc.backends.tvm.recording import Recorder
from optc.backends.tvm.runtime_libs import LIBRARIES
from optc.backends.tvm.weights_file import MappedWeights, placed_from_json
from optc.errors import ArtifactError
from optc.machine import this_machine
from optc.runtime.executable import EngineSpec

#: Device types CUDA and CPU (where shapes are computed), device 0, pooled allocators.
_CUDA_POOLED = (2, 0, 2, 1, 0, 2)


def load_engine(folder: Path, spec: EngineSpec, data: dict[str, Any]) -> CudaExecutable:
    """Load the engine in ``folder`` that `optc.backends.tvm.cuda.build.build_engine` wrote, on the
    first CUDA device (of those that ``CUDA_VISIBLE_DEVICES`` names).

    Raises:
        UnavailableError: No driver, device or CUDA runtime library, no code for the device, or
            tvm_ffi is of another release.
        ArtifactError: A file is missing, truncated or cannot be opened, or an older optc compiled
            the engine.
    """
    shared = folder / data.get("shared", ".")  # another engine's, with these weights among its own
    images: dict[str, str] = data["cuda"]["images"]
    if "range_values" not in data["cuda"]:
        raise ArtifactError(
            "the engine's steps have other arguments: an older optc compiled it",
            where="tvm engine",
            hint="compile the artifact again",
        )
    mine = (ENGINE_FILE, *images.values(), *LIBRARIES, RUNTIME_LIBRARY)
    check_files(*(folder / name for name in mine), shared / WEIGHTS_FILE)
    ffi = start_runtime(folder, data["ffi"])
    sm = best_image([int(name) for name in images], this_machine().sm[0])
    register_image(data["cuda"]["digest"], folder / images[str(sm)])
    engine = folder / ENGINE_FILE
    vm = open_vm(ffi, engine, _CUDA_POOLED)
    names = ["step", *(f"copy_kv_{g}" for g in range(len(spec.groups)))]
    device = Device(ffi)
    placed = [placed_from_json(item) for item in data["weights"]]
    mapped = MappedWeights(shared / WEIGHTS_FILE, placed)
    weights = [device.copy_of(mapped.array(p.tensor.name)) for p in placed]
    mapped.close()
    functions = {name: vm[name] for name in names}
    results = Results(device, spec, data["cuda"]["range_values"])
    graphs = _graphs(ffi, device, engine, data["cuda"]["kernels"][0])
    return CudaExecutable(device, functions, spec, weights, results, graphs)


def _graphs(ffi: ModuleType, device: Device, engine: Path, kernel: str) -> Graphs:
    library = kernel_library(ffi, engine, kernel)
    return Graphs(
        Arena(device),
        lambda: Recorder(open_vm(ffi, engine, _CUDA_POOLED), library),
        lambda: Capture(ffi, open_cudart(), device.handle),
        library.get_function,
    )
