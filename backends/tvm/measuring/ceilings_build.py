"""The ceilings compiled on their own, without an engine: ``optc targets --measure``."""

from __future__ import annotations

from pathlib import Path

from optc.backends.tvm.compiling.build import compiling
from optc.backends.tvm.compiling.link import linker_command
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.measuring.ceilings import Meter, open_meter
from optc.backends.tvm.program import Program
from optc.backends.tvm.runtime_libs import copy_libraries, ffi_version
from optc.system.hardware.target import Target


def build_meter(target: Target, folder: Path, threads: int, working_set_bytes: int) -> Meter:
    """Compile an engine without functions, which holds the ceilings, and open its meter."""
    isa = isa_of(target)
    linker_command()
    copy_libraries(folder)
    with compiling(Program((), {}, target.name, target.features), folder) as finish:
        finish()
    data = {"features": list(isa.features), "ffi": ffi_version(), "weights": []}
    return open_meter(folder, data, threads, working_set_bytes)
