"""Tensors as the Open Inference Protocol sends them: JSON, or raw bytes behind it.

https://github.com/kserve/open-inference-protocol, and the extension for binary tensor data of
Triton, whose bytes are little-endian and row-major.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.tensors_interface import TensorSpec
from optc.serve.api_errors import APIError

Array = npt.NDArray[Any]

#: Names of types in the protocol, by ours.
DATATYPES = {
    "bool": "BOOL",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
_DTYPES = {name: dtype for dtype, name in DATATYPES.items() if dtype != "bfloat16"}


def described(spec: TensorSpec) -> dict[str, Any]:
    """A tensor's name, type and shape; dimensions of several sizes are -1."""
    shape = [dim if isinstance(dim, int) else -1 for dim in spec.dims]
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": shape}


def decoded(given: Mapping[str, Any], raw: memoryview | None) -> Array:
    """The array of an entry of ``inputs``.

    Args:
        given: Its name, type, shape, and data unless they are binary.
        raw: Its bytes where they are.

    Raises:
        APIError: Data do not fit the type or the shape.
    """
    name = f"inputs[{given['name'][:64]!r}]"
    kind = _DTYPES.get(given["datatype"])
    if kind is None:
        known = ", ".join(_DTYPES)
        raise APIError(400, f"{name}: the datatype is none of {known}", "inputs")
    shape = given["shape"]
    if any(size < 0 for size in shape):
        raise APIError(400, f"{name}: the shape {shape} has a negative size", "inputs")
    array = _of_json(given, kind, name) if raw is None else _of_bytes(raw, kind, name)
    if array.size != math.prod(shape):
        message = f"{name}: {array.size} elements do not have the shape {shape}"
        raise APIError(400, message, "inputs")
    return array.reshape(shape)


def encoded(name: str, array: Array, binary: bool) -> tuple[dict[str, Any], bytes]:
    """An entry of ``outputs`` and the bytes that go behind the JSON: none unless ``binary``."""
    entry: dict[str, Any] = {
        "name": name,
        "datatype": DATATYPES[array.dtype.name],
        "shape": list(array.shape),
    }
    if binary:
        raw = np.ascontiguousarray(array).tobytes()
        return {**entry, "parameters": {"binary_data_size": len(raw)}}, raw
    wide = array.astype(np.float32) if entry["datatype"] in ("BF16", "FP16") else array
    if wide.dtype.kind == "f" and not np.isfinite(wide).all():
        message = f"the output {name!r} is not finite, which JSON cannot say; ask for binary data"
        raise APIError(400, message, "outputs")
    return {**entry, "data": wide.reshape(-1).tolist()}, b""


def _of_json(given: Mapping[str, Any], kind: str, name: str) -> Array:
    data = given.get("data")
    if data is None:
        raise APIError(400, f"{name}: there are no data", "inputs")
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise APIError(400, f"{name}: rows of the data differ in length", "inputs") from error
    if array.size == 0:
        return np.empty(0, kind)
    wanted = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[np.dtype(kind).kind]
    if array.dtype.kind not in wanted:
        raise APIError(400, f"{name}: the data are no {given['datatype']}", "inputs")
    if kind[0] in "iu" and not _fits(array, kind):
        raise APIError(400, f"{name}: a number is out of range of {given['datatype']}", "inputs")
    with np.errstate(over="ignore"):
        return array.astype(kind).reshape(-1)


def _fits(array: Array, kind: str) -> bool:
    bounds = np.iinfo(kind)
    return int(array.min()) >= bounds.min and int(array.max()) <= bounds.max


def _of_bytes(raw: memoryview, kind: str, name: str) -> Array:
    width = np.dtype(kind).itemsize
    if len(raw) % width:
        raise APIError(400, f"{name}: {len(raw)} bytes are no elements of {width}", "inputs")
    return np.frombuffer(raw, np.dtype(kind).newbyteorder("<"))
