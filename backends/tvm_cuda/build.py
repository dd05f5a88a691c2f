"""Building a CUDA engine: as for the CPU, with cubins beside the library."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
from msgspec import structs, to_builtins

from optc.backend import BuildOptions, EngineBuild
from optc.backends.tvm.compiling.build import compiling, pack_weights
from optc.backends.tvm.compiling.link import linker_command
from optc.backends.tvm.engine_files import ENGINE_FILE
from optc.backends.tvm.lowering.costs import step_costs
from optc.backends.tvm.lowering.lower_model import Lowered, lower_model
from optc.backends.tvm.program import kernel_names
from optc.backends.tvm.runtime_libs import FFI_PACKAGE, copy_libraries, ffi_version
from optc.backends.tvm_cuda.engine_data import RUNTIME_LIBRARY, CudaEngineData, DeviceCode
from optc.backends.tvm_cuda.images import image_file
from optc.backends.tvm_cuda.limits import PEAKS, refusal
from optc.backends.tvm_cuda.step_memory import step_range_values, with_step_memory
from optc.backends.tvm_cuda.toolchain import device_compiler
from optc.errors import UnsupportedError
from optc.system.hardware.target import Target


def build_engine(
    model: ir.Model, target: Target, workdir: Path, options: BuildOptions
) -> EngineBuild:
    """Build ``model`` into ``workdir`` (see `optc.backend.StepBackend.build`).

    Raises:
        UnsupportedError: Nodes or a kernel configuration that have no CUDA kernels.
        UnavailableError: No compiler for CUDA, no linker, or TVM crashed.
    """
    device_compiler()
    linker_command()
    started = time.perf_counter()
    _check(model)
    lowered = _sampled_by_host(lower_model(model, target, options))
    program = with_step_memory(lowered.program)
    with compiling(program, workdir, "optc.backends.tvm_cuda.compiler") as finish:
        files, placed = pack_weights(lowered, workdir, options.shared)
        report = finish()
    libraries = copy_libraries(workdir, RUNTIME_LIBRARY)
    report.update(
        build_seconds=time.perf_counter() - started,
        weight_bytes=max((p.end for p in placed), default=0),
    )
    data = CudaEngineData(
        shared="." if options.shared is None else options.shared.folder,
        cuda=DeviceCode(
            images={str(sm): image_file(sm) for sm in target.sm},
            digest=report.pop("digest"),
            range_values=step_range_values(program),
            kernels=tuple(kernel_names(program).values()),
        ),
        costs=step_costs(lowered.program, PEAKS),
        ffi=ffi_version(),
        weights=tuple(placed),
    )
    return EngineBuild(
        files=(ENGINE_FILE, *data.images.values(), *dict.fromkeys((*files, *libraries))),
        spec=lowered.spec,
        requires={FFI_PACKAGE: ffi_version()},
        backend_data=to_builtins(data),
        report={**report, "zeros": lowered.sparse.to_json()},
        warnings=lowered.sparse.lines(),
    )


def _check(model: ir.Model) -> None:
    reasons = dict.fromkeys(reason for node in model.graph if (reason := refusal(node)))
    if reasons:
        raise UnsupportedError(
            "; ".join(reasons),
            where="tvm-cuda backend",
            hint="compile for a CPU instead: --backend tvm",
        )


def _sampled_by_host(lowered: Lowered) -> Lowered:
    """Without the engine's function ``sample``, which has no CUDA kernel: NumPy draws."""
    program = lowered.program
    functions = tuple(f for f in program.functions if f.name != "sample")
    return replace(
        lowered,
        program=replace(program, functions=functions),
        spec=structs.replace(lowered.spec, samples=False),
    )
