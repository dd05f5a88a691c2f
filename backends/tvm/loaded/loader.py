"""Loading an engine: needs NumPy, tvm_ffi and the artifact's own files."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from optc.backends.tvm.engine_data import CpuEngineData, read_data
from optc.backends.tvm.engine_files import WEIGHTS_FILE, check_files, code_files
from optc.backends.tvm.fingerprint import FINGERPRINT, check_fingerprint
from optc.backends.tvm.loaded.executable import TvmExecutable
from optc.backends.tvm.loaded.thread_pool import load_library, want_threads
from optc.backends.tvm.replay.recording import Recorder
from optc.backends.tvm.replay.replay import REPLAY, Replays
from optc.backends.tvm.runtime_libs import check_ffi_version, import_ffi, open_runtime
from optc.backends.tvm.streamed.budget import resident_bytes
from optc.backends.tvm.streamed.pieces import experts_of
from optc.backends.tvm.streamed.streamed_files import StreamedFiles
from optc.backends.tvm.weights.weights_file import WeightFiles
from optc.errors import ArtifactError, UnavailableError
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.target import Target, host_features, lacking, tiles_withheld

#: Device type CPU, device 0 and an allocator: TVM's pool, and for results the C library's
#: (`optc.backends.tvm.compiling.result_memory`).
CPU_DEVICES = (1, 0, 2, 1, 0, 1)


def load_engine(
    folder: Path,
    spec: StepInterface,
    data: dict[str, Any],
    threads: int,
    resident: int | None = None,
) -> TvmExecutable:
    """Load the engine in ``folder`` that `optc.backends.tvm.compiling.build.build_engine` wrote.

    Args:
        folder: Holds the engine's files.
        spec: As the build gave it.
        data: The build's ``backend_data``.
        threads: Threads of every kernel.
        resident: Most bytes of weights that stay in memory; None are all that fit
            (`optc.backends.tvm.streamed.budget`).

    Raises:
        UnavailableError: The CPU lacks features of the engine, tvm_ffi is of another release, or
            the system cannot keep a part of the weights in memory.
        InputError: So much memory is not left.
        ArtifactError: A file is missing, truncated or cannot be opened, or the spec or the weights
            are not those of the engine.
    """
    found = read_data(data)
    shared = folder / found.shared  # another engine's, with these weights among its own
    libraries = folder / found.libraries
    code = code_files()
    engine = folder / code.engine
    check_files(engine, shared / WEIGHTS_FILE, *(libraries / name for name in code.libraries))
    ffi = start_runtime(libraries, found, threads)
    vm = open_vm(ffi, engine, CPU_DEVICES)
    check_fingerprint(ffi, kernel_library(ffi, engine, FINGERPRINT), spec, found)
    files = (shared / WEIGHTS_FILE, folder / WEIGHTS_FILE)
    budget = resident_bytes(resident, found.weights)
    names = ["step", *(f"copy_kv_{g}" for g in range(len(spec.groups)))]
    if spec.accept_rates:
        names.append("medusa")
    if spec.samples:
        names.append("sample")
    if spec.encoded:
        names.append("write_encoded")
    functions = {name: vm[name] for name in names}
    weight_names = [p.name for p in found.weights]
    if budget is not None:
        streamed = StreamedFiles(*files, found.weights, experts_of(found.costs), budget)
        watch = streamed.watch(vm)
        return TvmExecutable(ffi, functions, spec, streamed, weight_names, watch)
    weights = WeightFiles(*files, found.weights)
    replays = _replays(ffi, engine, "step")
    head_replays = _replays(ffi, engine, "medusa") if spec.accept_rates else None
    return TvmExecutable(ffi, functions, spec, weights, weight_names, replays, head_replays)


def _replays(ffi: ModuleType, engine: Path, function: str) -> Replays:
    library = kernel_library(ffi, engine, REPLAY)
    run = library.get_function(REPLAY)
    return Replays(
        ffi, engine, run, lambda: Recorder(open_vm(ffi, engine, CPU_DEVICES), library, function)
    )


def kernel_library(ffi: ModuleType, engine: Path, kernel: str) -> Any:
    """The module of ``engine`` that holds its kernels by name, ``kernel`` among them.

    Raises:
        ArtifactError: It has no such kernel.
    """
    for library in load_library(ffi, engine).imports:
        if library.implements_function(kernel):
            return library
    raise ArtifactError(
        f"the engine has no kernel {kernel!r}: another optc compiled it",
        where=engine.name,
        hint="compile the artifact again",
    )


def start_runtime(folder: Path, data: CpuEngineData, threads: int | None) -> ModuleType:
    """TVM's runtime, ``threads`` for what the calling thread loads next, unless an engine has its
    own (None); returns ``tvm_ffi``.

    Raises:
        UnavailableError, ArtifactError: As `load_engine`.
    """
    _check_cpu(data.features)
    check_ffi_version(data.ffi)
    ffi = import_ffi()
    open_runtime(folder)
    if threads is not None:
        want_threads(threads)
    return ffi


def _check_cpu(features: tuple[str, ...]) -> None:
    missing = Target("", "cpu", features).missing_on(host_features())
    if missing:
        raise UnavailableError(
            f"the engine was compiled for {', '.join(missing)}, "
            f"{lacking(missing, tiles_withheld())}",
            where="tvm engine",
            hint="compile the artifact for this machine: --target native",
        )


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
