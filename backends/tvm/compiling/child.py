"""The compiler's own process: ``python -m optc.backends.tvm.compiling.child PROGRAM RESULT
ENGINE``.

Only this process loads the compiler (300 MB of library) and may crash or run out of memory. It
reads a `Program`, writes the engine, and says in RESULT (JSON) how it went.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.backends.tvm.program import Program
from optc.errors import OptcError
from optc.target import CUDA


def main(arguments: Sequence[str]) -> int:
    """Compile; returns the exit status: 0 done, 1 refused for a reason given in RESULT."""
    program_path, result_path, engine_path = map(Path, arguments)
    program = Program.from_json(program_path.read_text())
    try:
        result: dict[str, Any] = {"report": _compile(program, engine_path)}
    except OptcError as error:
        result = {"error": error.to_json()}
    result_path.write_text(json.dumps(result))
    return int("error" in result)


def _compile(program: Program, engine: Path) -> dict[str, Any]:
    started = time.perf_counter()
    # TVM imports torch if it can: two seconds and 200 MB that the compiler has no use for
    sys.modules["torch"] = None  # type: ignore[assignment]
    if program.target.startswith(CUDA):
        from optc.backends.tvm.cuda.compiler import compile_program
    else:
        from optc.backends.tvm.compiling.compiler import compile_program

    imported = time.perf_counter()
    report = compile_program(program, engine)
    report["import_seconds"] = imported - started
    report["compile_seconds"] = time.perf_counter() - imported
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
