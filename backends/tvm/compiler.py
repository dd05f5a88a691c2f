"""TVM at work: Relax passes, code generation and linking. Runs in the child process."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from optc.backends.tvm.emit import emit
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.link import link
from optc.backends.tvm.program import Program
from optc.target import Target


def compile_program(program: Program, engine: Path) -> dict[str, Any]:
    """Compile ``program`` into the shared library ``engine``; returns figures for the report.

    Raises:
        UnavailableError: The target's features fit no kernel, or there is no linker.
        UnsupportedError: A kernel refuses its configuration.
    """
    isa = isa_of(Target(program.target, "cpu", program.features))
    module = emit(program, isa)
    kernels = sum(isinstance(f, tvm.tirx.PrimFunc) for f in module.functions.values())
    with tvm.transform.PassContext(opt_level=3):
        executable = relax.build(module, target=isa.tvm_target())
    _export(executable, engine)
    return {
        "isa": isa.name,
        "kernels": kernels,
        "calls": {f.name: len(f.calls) for f in program.functions},
        "compiler_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _export(executable: Any, engine: Path) -> None:
    def link_objects(output: str, objects: list[str], options: Any = None, **_: Any) -> None:
        link(output, objects)

    # no triple: TVM would otherwise run the linker to ask for it
    link_objects.get_target_triple = lambda: None  # type: ignore[attr-defined]
    executable.export_library(str(engine), fcompile=link_objects)
