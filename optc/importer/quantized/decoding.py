"""Float types of few bits, decoded.

E4M3 (OCP 8-bit floats: no infinities), E2M1 and E8M0 (OCP microscaling formats 1.0).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

from optc.importer.conversion.tensor import Float32

Bytes = npt.NDArray[np.uint8]
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e4m3(codes: Bytes) -> Float32:
    """E4M3 as float32."""
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def e8m0(codes: Bytes) -> Float32:
    """Powers of two: 2^(code - 127)."""
    return np.ldexp(np.float32(1), codes.astype(np.int32) - 127).astype(np.float32)


def e2m1(pairs: Bytes) -> Float32:
    """Two values a byte, the low nibble first: [..., P] -> [..., 2P]."""
    both = np.stack([pairs & 15, pairs >> 4], axis=-1)
    return _E2M1[both].reshape(*pairs.shape[:-1], -1)


def by_group(values: Float32, scales: Float32) -> Float32:
    """Values [n, K] times scales [n, G] of K/G columns each."""
    n, columns = values.shape
    return (values.reshape(n, scales.shape[1], -1) * scales[:, :, None]).reshape(n, columns)
