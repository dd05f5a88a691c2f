"""Results of a step get memory of their own; what it computes in between comes from a pool.

What a step computes in between is planned for the most rows that a step can have: the same storages
in every step, of which few rows touch little. TVM's pool hands them out again and again, so that no
page is cleared anew and the C library's heap stays in one piece. Results are as large as the step
has rows of logits, and the pool keeps what is freed for requests of the very same size: with every
new number it would grow by such a result, to a gigabyte and more with 128,256 tokens.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.op.vm import alloc_storage

#: Index of the device without a pool: for CPU engines the virtual machine is started with the same
#: device twice, with the pool and without (`optc.backends.tvm.loaded.loader`).
_UNPOOLED = 1
_STORAGE = "relax.vm.alloc_storage"


@tvm.transform.module_pass(opt_level=0)
def results_apart(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Put storages of a size that only a call determines (results) on the second device."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = _rewritten(function)
    return module


def _rewritten(function: relax.Function) -> relax.Function:
    bindings = [b for block in function.body.blocks for b in block.bindings]
    moved = [relax.VarBinding(b.var, _moved(b.value)) for b in bindings]
    body = relax.SeqExpr([relax.BindingBlock(moved)], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _moved(value: Any) -> Any:
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != _STORAGE:
        return value
    size, _, dtype, scope = value.args
    if isinstance(size, relax.ShapeExpr):
        return value
    return alloc_storage(size, _UNPOOLED, dtype, scope)
