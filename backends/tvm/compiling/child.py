"""The compiler's own process (`optc.system.processes.child_job`): it reads a `Program` and writes
the engine.

Only this process loads the compiler (300 MB of library) and may crash or run out of memory.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from optc.backends.tvm.program import Program
from optc.system.processes.child_job import answer


def compile_engine(request: str) -> dict[str, Any]:
    """Compile the request's ``program`` into its ``engine`` by the function ``compile_program`` of
    the module ``compiler``; figures for the report."""
    asked = json.loads(request)
    program, engine = Program.from_json(asked["program"]), Path(asked["engine"])
    started = time.perf_counter()
    # TVM imports torch if it can: two seconds and 200 MB that the compiler has no use for
    sys.modules["torch"] = None  # type: ignore[assignment]
    compiler = import_module(asked["compiler"])
    imported = time.perf_counter()
    report: dict[str, Any] = compiler.compile_program(program, engine)
    report["import_seconds"] = imported - started
    report["compile_seconds"] = time.perf_counter() - imported
    return report


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], compile_engine))
