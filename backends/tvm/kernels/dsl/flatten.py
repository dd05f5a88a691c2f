"""Buffers of one dimension, each index simplified by itself.

TVM's own pass looks at every index together with all loops around it. In kernels that are written
by hand it finds nothing there, and takes up to half of their compile time.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

#: Calls that access a buffer -> place of the first index; behind the last one is the mask.
_MASKED = {"tirx.masked_load": 1, "tirx.masked_store": 2}


@tvm.transform.module_pass(opt_level=0, name="optc.FlattenBuffers")
def flatten_buffers(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Flatten the kernels of ``module`` by `flattened`, and by TVM what Relax's own operators
    became: their indices come from fused loops."""
    functions = module.functions_items()
    kernels = {v: flattened(f) for v, f in functions if "tirx.is_scheduled" in (f.attrs or {})}
    others = {v: f for v, f in functions if v not in kernels}
    module = tirx.transform.FlattenBuffer()(tvm.IRModule(others, attrs=module.attrs))
    module.update(kernels)
    return module


def flattened(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """``kernel`` with buffers of one dimension. Its arguments keep their shapes, which callers are
    checked by; the body reads and writes flat views of them.

    Raises:
        ValueError: A buffer holds booleans, which TVM's pass alone stores as bytes.
    """
    views = _Views()
    body = tvm_ffi.structural_map(
        kernel.body,
        [
            (tvm.ir.TensorLoad, views.load),
            (tirx.BufferStore, views.store),
            (tirx.AllocBuffer, views.allocate),
            (tirx.DeclBuffer, views.declare),
            (tvm.ir.Call, views.call),
        ],
    )
    declared = [
        tirx.DeclBuffer(views.flat[argument], data=argument.data)
        for argument in kernel.params
        if argument in views.flat
    ]
    return kernel.with_body(tirx.SeqStmt([*declared, body]) if declared else body)


class _Views:
    """Flat buffers in place of others. The methods replace one node each; what is below it has been
    replaced before.

    Attributes:
        flat: Buffer -> its flat one, of all that were seen.
    """

    def __init__(self) -> None:
        self.flat: dict[Any, Any] = {}

    def load(self, node: Any) -> Any:
        return tirx.BufferLoad(self._of(node.source), node.source.offset_of(node.indices))

    def store(self, node: Any) -> Any:
        indices = node.buffer.offset_of(node.indices)
        return tirx.BufferStore(self._of(node.buffer), node.value, indices)

    def allocate(self, node: Any) -> Any:
        return tirx.AllocBuffer(self._of(node.buffer), node.annotations)

    def declare(self, node: Any) -> Any:
        return tirx.DeclBuffer(self._of(node.buffer), data=node.data)

    def call(self, node: Any) -> Any:
        """Masked loads and stores; other calls hold loads, if any buffer."""
        first = _MASKED.get(getattr(node.op, "name", ""))
        if first is None:
            return node
        buffer, *arguments, mask = node.args
        rest, indices = arguments[: first - 1], arguments[first - 1 :]
        replaced = [self._of(buffer), *rest, *buffer.offset_of(indices), mask]
        return tvm.ir.Call(node.op, replaced, node.attrs, ret_ty=node.ty)

    def _of(self, buffer: Any) -> Any:
        if buffer not in self.flat:
            whole = buffer.get_flattened_buffer()
            if str(whole.dtype).startswith("bool"):
                raise ValueError("kernels hold no booleans in buffers")
            self.flat[buffer] = tirx.decl_buffer(
                whole.shape,
                whole.dtype,
                buffer.name,
                strides=whole.strides,
                elem_offset=whole.elem_offset,
                scope=whole.scope(),
                data_alignment=whole.data_alignment,
                offset_factor=whole.offset_factor,
                layout=None,
            )
        return self.flat[buffer]
