"""TVM at work: Relax passes, code generation and linking. Runs in the child process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from optc.backends.tvm.compiling.emit import emit, make_kernel
from optc.backends.tvm.compiling.kernel_objects import KernelObjects, without
from optc.backends.tvm.compiling.link import link
from optc.backends.tvm.compiling.result_memory import results_apart
from optc.backends.tvm.compiling.trim import trim
from optc.backends.tvm.fingerprint import FINGERPRINT
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.fingerprint import fingerprint_kernel
from optc.backends.tvm.kernels.token_wise.call_list import replay_kernel
from optc.backends.tvm.loaded.thread_pool import SOURCE as THREAD_POOL
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from optc.backends.tvm.program import Call, Function, Program, kernel_names, replayable
from optc.backends.tvm.replay.replay import REPLAY
from optc.system.hardware.target import Target
from optc.system.processes.process_memory import own_peak_bytes

#: Before the name of a function in the symbol that TVM looks up.
PREFIX = "__tvm_ffi_"


def compile_program(program: Program, engine: Path) -> dict[str, Any]:
    """Compile ``program`` into the shared library ``engine``; returns figures for the report.

    Raises:
        UnavailableError: The target's features fit no kernel, or there is no linker.
        UnsupportedError: A kernel refuses its configuration.
    """
    isa = isa_of(Target(program.target, "cpu", program.features))
    objects = KernelObjects(isa)

    def make(call: Call) -> tvm.tirx.PrimFunc:
        operands = len(call.inputs) + len(call.updated) + len(call.outputs)
        made = partial(make_kernel, call.kernel, call.config, isa)
        return objects.function(call.key, operands, made)

    module = emit(program, make)
    keys = {name: key for key, name in kernel_names(program).items()}
    for name, ceiling in ceiling_kernels(isa).items():
        module[name], keys[name] = ceiling, name
    if replayable(program):
        module[REPLAY], keys[REPLAY] = replay_kernel(), REPLAY
    if program.fingerprint:
        module[FINGERPRINT] = fingerprint_kernel(program.fingerprint)
    kernels = {objects.symbol(key): objects.object(key, module[name]) for name, key in keys.items()}
    objects.prune()
    executable = relax.build(
        module,
        target=isa.tvm_target(),
        relax_pipeline=tvm.transform.Sequential([relax_pipeline(program), results_apart]),
        tir_pipeline=without(frozenset(keys)),
    )
    names = {f"{PREFIX}{name}": f"{PREFIX}{objects.symbol(key)}" for name, key in keys.items()}
    export(executable, engine, THREAD_POOL, kernels=kernels, names=names, platform=isa.platform)
    return {
        "isa": isa.name,
        "kernels": len(kernel_names(program)),
        "kernels_compiled": objects.compiled,
        "calls": {f.name: len(f.calls) for f in program.functions},
        "compiler_peak_bytes": own_peak_bytes(),
    }


def relax_pipeline(program: Program, *schedule: tvm.transform.Pass) -> tvm.transform.Pass:
    """Relax down to calls of the virtual machine; ``schedule`` is for the kernels of TVM's own.

    Tensors are not killed after their last use: their memory is planned once for the whole step.
    """
    trusted = {f.name: _trusted(f) for f in program.functions}

    @tvm.transform.module_pass(opt_level=0)
    def trim_functions(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                module[variable] = trim(function, trusted[variable.name_hint])
        return module

    return tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            *schedule,
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            trim_functions,
            relax.transform.AttachGlobalSymbol(),
        ]
    )


def _trusted(function: Function) -> frozenset[str]:
    """Arguments of fixed shape (weights): the loader maps them with just these shapes."""
    fixed = (t for t in function.arguments if all(isinstance(d, int) for d in t.shape))
    return frozenset(t.name for t in fixed)


def export(
    executable: Any,
    engine: Path,
    *sources: Path,
    kernels: Mapping[str, bytes] | None = None,
    names: Mapping[str, str] | None = None,
    platform: str = "",
) -> None:
    """Link the shared library ``engine``, with ``sources`` in C, with objects ``kernels`` and with
    further ``names`` of symbols, for a ``platform`` (see `link`).

    Raises:
        UnavailableError: There is no linker.
    """

    def link_objects(output: str, objects: list[str], options: Any = None, **_: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            more = [_written(Path(folder) / f"{n}.o", o) for n, o in (kernels or {}).items()]
            link(output, [*objects, *more], [str(source) for source in sources], names, platform)

    # no triple: TVM would otherwise run the linker to ask for it
    link_objects.get_target_triple = lambda: None  # type: ignore[attr-defined]
    executable.export_library(str(engine), fcompile=link_objects)


def _written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
