"""A list of kernel calls as one call: what a recorded step runs instead of the virtual machine.

An entry of the list is the address of a kernel's packed function, the address of its arguments and
their number (TVM's calling convention). TIR has no calls of addresses, so the loop is LLVM IR.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.tiles import argument, building
from optc.backends.tvm.replay.replay import REPLAY

_NAME = "optc_replay"
_IR = f"""
define i32 @{_NAME}(ptr %table, i64 %count) #0 {{
entry:
  %result = alloca [2 x i64], align 16
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %call
call:
  %index = phi i64 [0, %entry], [%next, %called]
  %next = add i64 %index, 1
  %first = mul i64 %index, 3
  %entry_function = getelementptr i64, ptr %table, i64 %first
  %entry_arguments = getelementptr i64, ptr %entry_function, i64 1
  %entry_number = getelementptr i64, ptr %entry_function, i64 2
  %function = load ptr, ptr %entry_function
  %arguments = load ptr, ptr %entry_arguments
  %number = load i64, ptr %entry_number
  %operands = trunc i64 %number to i32
  store [2 x i64] zeroinitializer, ptr %result
  %code = call i32 %function(ptr null, ptr %arguments, i32 %operands, ptr %result)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %stop, label %called
called:
  %more = icmp ult i64 %next, %count
  br i1 %more, label %call, label %done
stop:
  %place = trunc i64 %next to i32
  ret i32 %place
done:
  ret i32 0
}}
attributes #0 = {{ nounwind }}
"""


def replay_kernel() -> Any:
    """table int64 [calls, 3] -> failed int32 [1]: 0, or one plus the index of the call that did."""
    with building(REPLAY) as builder:
        calls = tir.int32()
        table = argument("table", (calls, 3), "int64")
        failed = argument("failed", (1,), "int32")
        with tir.attr(0, "pragma_import_llvm", _IR):
            count = tir.cast(calls, "int64")
            code = tir.call_extern("int32", _NAME, tir.address_of(table[0, 0]), count)
            tir.buffer_store(failed, code, [0])
    return builder.get()
