"""Checks inputs of a model of named tensors, before its engine sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec

Array = npt.NDArray[Any]


def checked_inputs(
    given: Mapping[str, Any], interface: TensorsInterface, where: str
) -> dict[str, Array]:
    """The inputs as arrays of the model's types.

    Args:
        given: Arrays by name: NumPy's, or of a library that speaks DLPack; they are not copied if
            their type is the input's.
        interface: Of the model.
        where: For errors.

    Raises:
        RequestError: A name is missing or unknown, or an array has another type or shape.
    """
    names = [one.name for one in interface.inputs]
    if sorted(given) != sorted(names):
        unknown = [name for name in given if name not in names]
        missing = [name for name in names if name not in given]
        what = f"has no input {unknown[0]!r}" if unknown else f"lacks the input {missing[0]!r}"
        hint = f"the inputs are {', '.join(names)}"
        if "images" in unknown:
            hint += "; a compile with --images (images=) says how images become one"
        raise RequestError(what, where=where, hint=hint)
    sizes: dict[str, int] = {}
    return {
        one.name: _checked(given[one.name], one, interface, sizes, f"{where}, input {one.name}")
        for one in interface.inputs
    }


def _checked(
    value: Any, spec: TensorSpec, interface: TensorsInterface, sizes: dict[str, int], where: str
) -> Array:
    array = _array(value, where)
    kind = np.dtype(spec.dtype)
    if array.dtype != kind:
        if not np.can_cast(array.dtype, kind, "same_kind"):
            raise RequestError(
                f"has the type {array.dtype}", where=where, hint=f"it takes {spec.dtype}"
            )
        array = _converted(array, kind, where)
    shown = "[" + ", ".join(map(str, spec.dims)) + "]"
    if array.ndim != len(spec.dims):
        raise RequestError(
            f"has {array.ndim} axes, and is to have {len(spec.dims)}", where=where, hint=shown
        )
    for axis, (size, dim) in enumerate(zip(array.shape, spec.dims, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                raise RequestError(
                    f"axis {axis} has {size} elements, not {dim}", where=where, hint=shown
                )
            continue
        bounds = interface.symbols[dim]
        if not bounds.least <= size <= bounds.most:
            raise RequestError(
                f"axis {axis}, {dim}, has {size} elements",
                where=where,
                hint=f"it was compiled for {bounds.least} to {bounds.most}",
            )
        if sizes.setdefault(dim, size) != size:
            raise RequestError(
                f"axis {axis}, {dim}, has {size} elements, and {sizes[dim]} in another input",
                where=where,
                hint="one name is one size",
            )
    return array


def _converted(array: Array, kind: np.dtype[Any], where: str) -> Array:
    """``array`` as a smaller type of its kind; whole numbers keep their values."""
    if kind.kind in "iu" and array.size:
        bounds = np.iinfo(kind)
        least, most = int(array.min()), int(array.max())
        if least < bounds.min or most > bounds.max:
            raise RequestError(
                f"has values from {least} to {most}, and {kind} holds {bounds.min} to {bounds.max}",
                where=where,
            )
    return array.astype(kind)


def _array(value: Any, where: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise RequestError(
            f"is no array: {error}",
            where=where,
            hint="give NumPy's array of it, such as tensor.detach().float().numpy()",
        ) from error
