"""Building an engine over packed rows: of a model of named tensors that a pass has packed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
from msgspec import to_builtins

from optc.backend import EngineBuild
from optc.backends.tvm.compiling.build import compiling
from optc.backends.tvm.compiling.link import linker_command
from optc.backends.tvm.engine_files import WEIGHTS_FILE, code_files
from optc.backends.tvm.fingerprint import tensors_fingerprint
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.lowering.lower_encoder import lower_encoder
from optc.backends.tvm.packed_data import PackedEngineData
from optc.backends.tvm.runtime_libs import FFI_PACKAGE, copy_libraries, ffi_version
from optc.backends.tvm.weights.weights_file import write_weights
from optc.errors import UnsupportedError
from optc.ir.forms.form import form_name
from optc.ir.forms.packed import PackedRows
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.system.hardware.target import Target


def build_encoder(
    model: ir.Model, interface: TensorsInterface, target: Target, workdir: Path
) -> EngineBuild:
    """Build ``model`` into ``workdir`` (`optc.backend.TensorsBuilder.build_tensors`).

    Raises:
        UnsupportedError: It is not packed, or nodes or a kernel's configuration cannot be taken.
        UnavailableError: No kernel for the target, no linker, or the compiler crashed.
    """
    if form_name(model) != PackedRows.name:
        raise UnsupportedError(
            "it takes encoders over packed rows, and the recipe packs none",
            where="backend tvm",
            hint="--recipe encoder-int8, or --backend onnxruntime",
        )
    isa = isa_of(target)
    linker_command(target.platform)
    started = time.perf_counter()
    lowered = lower_encoder(model, interface, target)
    lowered_at = time.perf_counter()
    tensors = [tensor for weight in lowered.weights for tensor in weight.tensors]
    mark = tensors_fingerprint(interface, lowered.packed, tensors)
    with compiling(replace(lowered.program, fingerprint=mark), workdir) as finish:
        libraries = copy_libraries(workdir, platform=target.platform)
        placed = write_weights(workdir / WEIGHTS_FILE, lowered.weights)
        packed_at = time.perf_counter()
        report = finish()
    size = max((p.end for p in placed), default=0)
    report.update(
        lower_seconds=lowered_at - started,
        pack_seconds=packed_at - lowered_at,
        build_seconds=time.perf_counter() - started,
        weight_bytes=size,
    )
    data = PackedEngineData(
        features=tuple(isa.features),
        ffi=ffi_version(),
        weights=tuple(placed),
        packed=lowered.packed,
    )
    return EngineBuild(
        files=(code_files(target.system).engine, WEIGHTS_FILE, *libraries),
        spec=interface,
        requires={FFI_PACKAGE: ffi_version()},
        backend_data=to_builtins(data),
        report=report,
        weight_bytes=size,
    )
