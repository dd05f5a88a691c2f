"""Stands in for TVM: does what the engine's file is named after."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.program import Program
from optc.errors import UnsupportedError
from optc.system.hardware.target import parse_target


def compile_program(program: Program, engine: Path) -> dict[str, Any]:
    """Refuse, crash, hang, or say what it finds."""
    print("noise", file=sys.stderr, flush=True)
    if engine.name == "refuse":
        raise UnsupportedError("no such node", where=program.target)
    if engine.name == "crash":
        os.abort()
    if engine.name == "hang":
        time.sleep(600)
    while time.process_time() < 0.2:
        pass
    return {
        "folder": os.getcwd(),
        "variable": os.environ.get("OPTC_STRANGE"),
        "pid": os.getpid(),
        "imported": "tvm" in sys.modules,
        "level": isa_of(parse_target(program.target)).tvm_target().attrs.get("opt-level"),
    }
