"""TVM at work on CUDA engines: host code into the library, device code into cubins beside it. Runs
in the child process."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import dlight

from optc.backends.tvm.compiling.compiler import export, relax_pipeline
from optc.backends.tvm.compiling.emit import KERNELS, emit
from optc.backends.tvm.program import Program, Tensor
from optc.backends.tvm_cuda import dependent_launch
from optc.backends.tvm_cuda.gpu import tvm_target
from optc.backends.tvm_cuda.images import CREATE, EDIT, image_file, key_of
from optc.backends.tvm_cuda.kernels.launch import device_source
from optc.backends.tvm_cuda.kernels.table import device_function
from optc.backends.tvm_cuda.toolchain import device_compiler
from optc.system.hardware.target import Target, parse_target
from optc.system.processes.process_memory import own_peak_bytes


def compile_program(program: Program, engine: Path) -> dict[str, Any]:
    """Compile ``program`` into the library ``engine`` and cubins beside it; figures for the report.

    Raises:
        UnavailableError: No compiler for CUDA, or no linker.
        UnsupportedError: A kernel does not exist for CUDA or refuses its configuration.
    """
    target = parse_target(program.target)
    program = _without_halves(program)
    module = emit(program, lambda call: make_device_function(call.kernel, call.config))
    kernels = sum(isinstance(f, tvm.tirx.PrimFunc) for f in module.functions.values())
    executable, digest, images = build(module, program, target)
    for sm, image in images.items():
        (engine.parent / image_file(sm)).write_bytes(image)
    export(executable, engine)
    return {
        "isa": target.arch,
        "digest": digest,
        "kernels": kernels,
        "calls": {f.name: len(f.calls) for f in program.functions},
        "image_bytes": {f"sm_{sm}": len(image) for sm, image in images.items()},
        "compiler_peak_bytes": own_peak_bytes(),
    }


def make_device_function(kernel: str, config: dict[str, Any]) -> tvm.tirx.PrimFunc:
    """The function of TIR of one kernel configuration."""
    module_name, class_name, _ = KERNELS[kernel]
    module = importlib.import_module(f"optc.backends.tvm.kernels.{module_name}")
    return device_function(kernel, getattr(module, class_name)(**config))


def build(
    module: tvm.IRModule, program: Program, target: Target
) -> tuple[Any, str, dict[int, bytes]]:
    """TVM's executable, the digest of its device code, and that code as a cubin for each
    architecture of ``target``.

    Raises:
        UnavailableError: No compiler for CUDA, or it refuses the code.
    """
    compiler = device_compiler()
    sources: list[str] = []

    def take(code: str, _: Any) -> str:
        source = device_source(code)
        sources.append(source)
        return key_of(_digest(source))

    tvm_ffi.register_global_func(EDIT, take, override=True)
    if tvm_ffi.get_global_func(CREATE, True) is not None:
        # With a driver TVM would compile the key at once; without, it writes down what it is given.
        tvm_ffi.remove_global_func(CREATE)
    device = tvm_target(target)
    with device:
        executable = relax.build(
            module,
            target=device,
            relax_pipeline=relax_pipeline(
                program, dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())
            ),
            tir_pipeline=dependent_launch.register(target),
        )
    (source,) = sources
    return executable, _digest(source), {sm: compiler(source, sm) for sm in target.sm}


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _without_halves(program: Program) -> Program:
    """The program with bits of float16 as uint16: the device code reads them without a header."""

    def tensor(t: Tensor) -> Tensor:
        return replace(t, dtype="uint16") if t.dtype == "float16" else t

    functions = tuple(
        replace(f, arguments=tuple(map(tensor, f.arguments))) for f in program.functions
    )
    return replace(program, functions=functions)
