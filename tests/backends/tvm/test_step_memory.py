"""Results of many sizes leave no memory behind; what a step computes in between is pooled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: A function whose result has as many rows as its argument, 64 KiB each, and that computes as much
#: before it.
BUILD = """
import sys
from pathlib import Path
from optc.backends.tvm.compiling.compiler import compile_program
from optc.backends.tvm.program import Call, Function, Program, Tensor
from optc.system.hardware.target import parse_target

def rows(name):
    return Tensor(name, "float32", ("T", 16384))

calls = (
    Call("relax.multiply", {}, ("x", "x"), (rows("square"),)),
    Call("relax.add", {}, ("square", "x"), (rows("sum"),)),
)
target = parse_target("native")
step = Function("step", (rows("x"),), calls, "sum")
program = Program((step,), {"T": 120}, target.name, target.features)
compile_program(program, Path(sys.argv[1]))
"""
#: Results of 1 to 120 rows are 454 MiB together, the largest 7.5 MiB, as is what comes before it.
RUN = """
import json, sys
from pathlib import Path
import numpy as np
from optc.backends.tvm.loaded.loader import CPU_DEVICES, open_vm
from optc.backends.tvm.runtime_libs import copy_libraries, import_ffi, open_runtime
from optc.backends.tvm.loaded.input_memory import aligned
from optc.system.processes.process_memory import own_peak_bytes

library = Path(sys.argv[1])
copy_libraries(library.parent)
ffi = import_ffi()
open_runtime(library.parent)
vm = open_vm(ffi, library, CPU_DEVICES)
storages = []

def note(_, name, before, __, *arguments):
    if before and name == "vm.builtin.alloc_storage":
        storages.append((list(arguments[1]), arguments[2]))
    return 0

vm["set_instrument"](note)
rows = aligned(120 * 16384).view(np.float32).reshape(120, 16384)
rows[:] = 1
before = own_peak_bytes()
for n in range(1, 121):
    result = vm["step"](ffi.from_dlpack(rows[:n]))
    assert (np.from_dlpack(result) == np.full((n, 16384), 2)).all()
grown = own_peak_bytes() - before
print(json.dumps({"grown": grown, "storages": storages}))
"""


def _python(code: str, argument: Path) -> str:
    command = [sys.executable, "-c", code, str(argument)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_only_what_every_step_takes_alike_is_pooled(tmp_path: Path) -> None:
    library = tmp_path / "module.so"
    _python(BUILD, library)
    found = json.loads(_python(RUN, library))
    row, most = 4 * 16384, 120
    for rows, (between, result) in enumerate(
        zip(found["storages"][::2], found["storages"][1::2], strict=True), start=1
    ):
        assert between == [[most * row], 0], "the pool, and the same in every step"
        assert result == [[rows * row], 1], "memory of its own"
    assert len(found["storages"]) == 2 * most
    # how the heap lies decides between some 50 and 90 MiB
    assert found["grown"] < 200 << 20
