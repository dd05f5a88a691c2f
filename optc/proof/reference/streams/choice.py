"""The choice of products for the runs of a calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from optc.proof.reference.execution.device import CPU, device_now
from optc.proof.reference.streams.int8_products import INT8, Int8Products
from optc.proof.reference.streams.products import (
    BFLOAT16,
    FLOAT32,
    BFloat16Products,
    Float32Products,
    Products,
    RunProducts,
)
from optc.system.hardware.target import host_features

#: The CPU feature from which on bfloat16 is multiplied faster than float32: CPUs with AMX have it.
_BFLOAT16_FEATURE = "avx512_bf16"
#: And int8: without it, oneDNN adds products of bytes in 16 bits.
_INT8_FEATURE = "avx512_vnni"
#: Weights of more bits lose as much by 8 bits for each row as by their own rounding.
_MOST_BITS = 4

_DTYPES = {one.name: one.dtype for one in (Float32Products, BFloat16Products, Int8Products)}


def products_of(name: str, threads: int) -> Products:
    """The products called ``name``, on the device that the reference runs on."""
    if name == INT8:
        return Int8Products(threads)
    device = device_now()
    return BFloat16Products(threads, device) if name == BFLOAT16 else Float32Products(device)


def run_products(names: tuple[str, str], threads: int) -> RunProducts:
    """Those called by ``names``, for the model as it is and for the weights that are replaced."""
    original, changed = (products_of(name, threads) for name in names)
    return RunProducts(original, changed)


def dtype_of(name: str) -> np.dtype[Any]:
    """`Products.dtype` of the products called ``name``."""
    return _DTYPES[name]


def products_here(features: frozenset[str] | None = None) -> str:
    """Name of the fastest products of floats on a CPU with these features, or on the device that
    the reference runs on."""
    if features is None and device_now() != CPU:
        return BFLOAT16
    return BFLOAT16 if _BFLOAT16_FEATURE in _known(features) else FLOAT32


def has_int8(features: frozenset[str] | None = None) -> bool:
    """True if a CPU with these features, or the device that the reference runs on, has exact and
    fast products of int8: no GPU is taken to."""
    if features is None and device_now() != CPU:
        return False
    return _INT8_FEATURE in _known(features)


def products_for(bits: int, features: frozenset[str] | None = None) -> tuple[str, str]:
    """Names of the best products for the model as it is, and with weights of ``bits`` bits."""
    usual = products_here(features)
    return usual, INT8 if bits <= _MOST_BITS and has_int8(features) else usual


def _known(features: frozenset[str] | None) -> frozenset[str]:
    return host_features() if features is None else features
