"""Products of linear layers over a text: in bfloat16 where the CPU multiplies it, else float32.

Most of a calibration's time is W x for every token of the text. CPUs with AVX512-BF16 or AMX
multiply bfloat16 at twice the pace of float32 and more, and add in float32; oneDNN has the
kernels, PyTorch brings it. Inputs, weights and results are rounded to bfloat16 (8 bits of
significand, 0.2 % each): weights of checkpoints in bfloat16 not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from optc.reference.submodel import Array
from optc.target import host_features

if TYPE_CHECKING:
    import torch

Float32 = npt.NDArray[np.float32]
#: The CPU feature from which on bfloat16 is multiplied faster than float32: CPUs with AMX have it.
_FEATURE = "avx512_bf16"
#: Names of both kinds of products.
FLOAT32, BFLOAT16 = "float32", "bfloat16"


class Products(Protocol):
    """Multiplies values of a text with weights.

    Attributes:
        name: `FLOAT32` or `BFLOAT16`.
        dtype: What inputs of products are rounded to, so that they may be kept in it.
    """

    name: str
    dtype: np.dtype[Any]

    def weight(self, rows: Array) -> Any:
        """Rows [N, K], ready to be multiplied with."""
        ...

    def __call__(self, x: Array, weights: Sequence[Any]) -> list[Float32]:
        """x Wᵀ [..., N] of values x [..., K], in float32 or ``dtype``, for each of ``weights``."""
        ...


class Float32Products:
    """Products in float32 by NumPy's BLAS."""

    name = FLOAT32
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def weight(self, rows: Array) -> Float32:
        """Rows [N, K] in float32."""
        return np.ascontiguousarray(rows, np.float32)

    def __call__(self, x: Array, weights: Sequence[Float32]) -> list[Float32]:
        """x Wᵀ for each weight."""
        flat = x.reshape(-1, x.shape[-1]).astype(np.float32, copy=False)
        return [(flat @ w.T).reshape(*x.shape[:-1], len(w)) for w in weights]


class BFloat16Products:
    """Products of bfloat16, added in float32, by oneDNN.

    Args:
        threads: Threads of PyTorch, for the process from now on.
    """

    name = BFLOAT16
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

    def __init__(self, threads: int) -> None:
        import torch  # takes a second, and 150 MB

        torch.set_num_threads(threads)

    def weight(self, rows: Array) -> torch.Tensor:
        """Rows [N, K] in bfloat16."""
        return _tensor(rows)

    def __call__(self, x: Array, weights: Sequence[torch.Tensor]) -> list[Float32]:
        """x Wᵀ for each weight."""
        import torch

        given = _tensor(x)
        with torch.inference_mode():
            results = [torch.nn.functional.linear(given, w).float() for w in weights]
        return [result.numpy() for result in results]


def products_of(name: str, threads: int) -> Products:
    """The products called ``name``."""
    return BFloat16Products(threads) if name == BFLOAT16 else Float32Products()


def dtype_of(name: str) -> np.dtype[Any]:
    """`Products.dtype` of the products called ``name``."""
    return (BFloat16Products if name == BFLOAT16 else Float32Products).dtype


def products_here(features: frozenset[str] | None = None) -> str:
    """Name of the fastest products on a CPU with these features, or on this machine's."""
    known = host_features() if features is None else features
    return BFLOAT16 if _FEATURE in known else FLOAT32


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Float32 values in ``dtype``, float32 or bfloat16, rounded to nearest, ties to even."""
    if dtype == values.dtype:
        return values
    if dtype == np.float32:
        return as_float32(values)
    import torch

    return _tensor(values).view(torch.int16).numpy().view(dtype)


def as_float32(values: Array) -> Float32:
    """Values in float32 or bfloat16, in float32."""
    if values.dtype == np.float32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _tensor(values: Array) -> torch.Tensor:
    """In bfloat16; without a copy where they are."""
    import torch

    fixed = np.ascontiguousarray(values)
    if not fixed.flags.writeable:  # PyTorch warns of such
        fixed = fixed.copy()
    if fixed.dtype != np.dtype(ml_dtypes.bfloat16):
        return torch.from_numpy(fixed.astype(np.float32, copy=False)).to(torch.bfloat16)
    return torch.from_numpy(fixed.view(np.int16)).view(torch.bfloat16)
