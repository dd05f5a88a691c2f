"""Takes needless work out of a lowered step: what the virtual machine would do at every call.

A step calls a few hundred kernels of which many take microseconds, so that checks and views cost
as much as the work between them. Measured on 200 kernels with 200 weights:
docs/adr/0007-weights-are-flat-arguments-of-the-step.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tvm import relax

_CHECKS = ("vm.builtin.check_tensor_info", "vm.builtin.match_shape")
_SHAPE = "vm.builtin.make_shape"
_VIEW = "relax.vm.alloc_tensor"


def trim(function: relax.Function, trusted: Collection[str]) -> relax.Function:
    """The function without

    1. checks of the parameters named in ``trusted``, which the loader makes once;
    2. second views of one storage with the same shape, and second tuples of the same shape;
    3. tuples that nobody reads.
    """
    bindings = [b for block in function.body.blocks for b in block.bindings]
    renamed: dict[Any, Any] = {}
    seen: dict[tuple[Any, ...], Any] = {}
    kept: list[Any] = []
    for binding in bindings:
        value = _replace(binding.value, renamed)
        if _is_trusted_check(value, trusted):
            continue
        if isinstance(value, relax.Var):
            renamed[binding.var] = value
            continue
        key = _view_key(value)
        if key is not None and key in seen:
            renamed[binding.var] = seen[key]
            continue
        if key is not None:
            seen[key] = binding.var
        kept.append(relax.VarBinding(binding.var, value))
    result = _replace(function.body.body, renamed)
    block = relax.BindingBlock(_used(kept, result))
    body = relax.SeqExpr([block], result)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _replace(value: Any, renamed: dict[Any, Any]) -> Any:
    if isinstance(value, relax.Var):
        return renamed.get(value, value)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_replace(field, renamed) for field in value.fields])
    if isinstance(value, relax.TupleGetItem):
        whole = _replace(value.tuple_value, renamed)
        return relax.TupleGetItem(whole, value.index)
    if isinstance(value, relax.Call):
        arguments = [_replace(argument, renamed) for argument in value.args]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)
    return value


def _extern(value: Any) -> str:
    """Name of the packed function or operator that ``value`` calls, else empty."""
    if not isinstance(value, relax.Call):
        return ""
    if isinstance(value.op, relax.ExternFunc):
        return str(value.op.global_symbol)
    return str(getattr(value.op, "name", ""))


def _is_trusted_check(value: Any, trusted: Collection[str]) -> bool:
    return _extern(value) in _CHECKS and value.args[0].name in trusted


def _view_key(value: Any) -> tuple[Any, ...] | None:
    """A key that is equal for the same shapes or views; None for anything else."""
    name = _extern(value)
    if name not in (_SHAPE, _VIEW):
        return None
    return (name, *(a if isinstance(a, relax.Var) else str(a) for a in value.args))


def _used(bindings: list[Any], result: Any) -> list[Any]:
    """The bindings without tuples that nothing reads."""
    read: set[Any] = set()
    kept = []
    for binding in reversed([*bindings, relax.VarBinding(relax.Var("result"), result)]):
        if isinstance(binding.value, relax.Tuple) and binding.var not in read:
            continue
        read.update(_variables(binding.value))
        kept.append(binding)
    return kept[:0:-1]


def _variables(value: Any) -> list[Any]:
    if isinstance(value, relax.Var):
        return [value]
    if isinstance(value, relax.Tuple):
        return [v for field in value.fields for v in _variables(field)]
    if isinstance(value, relax.TupleGetItem):
        return _variables(value.tuple_value)
    if isinstance(value, relax.Call):
        return [v for argument in value.args for v in _variables(argument)]
    return []
