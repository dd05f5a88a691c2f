"""The virtual machine keeps no memory for results of sizes that came before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A function whose result has as many rows as its argument, 64 KiB each.
BUILD = """
import sys
import tvm
from tvm import relax, tirx

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 16384], "float32"))
with builder.function("main", [x]):
    builder.emit_func_output(builder.emit(relax.op.add(x, x)))
tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"})).export_library(sys.argv[1])
"""
#: Results of 1 to 120 rows are 454 MiB together, the largest 7.5 MiB.
RUN = """
import resource, sys
from pathlib import Path
import numpy as np
from optc.backends.tvm.loader import open_vm
from optc.backends.tvm.runtime_libs import copy_libraries, import_ffi, open_runtime

library = Path(sys.argv[1])
copy_libraries(library.parent)
ffi = import_ffi()
open_runtime(library.parent)
run = open_vm(ffi, library)["main"]
rows = np.ones((120, 16384), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n in range(1, 121):
    result = run(ffi.from_dlpack(rows[:n]))
    assert np.from_dlpack(result).shape == (n, 16384)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def _python(code: str, argument: Path) -> str:
    command = [sys.executable, "-c", code, str(argument)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_results_of_new_sizes_take_no_new_memory(tmp_path: Path) -> None:
    library = tmp_path / "module.so"
    _python(BUILD, library)
    grown_kib = int(_python(RUN, library))
    assert grown_kib < 64 << 10
