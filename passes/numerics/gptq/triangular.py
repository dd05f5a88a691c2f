"""Cholesky factors and their inverses in the place of the matrix, block by block.

NumPy's own make three to four copies of a matrix, and invert a triangular one as though it were
full: of 8,192 inputs a copy is 512 MiB.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
#: Rows and columns of a block: products of blocks are most of the work.
_BLOCK = 256
#: Rows that are solved together.
_ROWS = 1024


def cholesky_in_place(matrix: Float64) -> None:
    """The lower triangle becomes L with L Lᵀ = ``matrix`` [K, K], symmetric; what is above the
    diagonal stays.

    Raises:
        numpy.linalg.LinAlgError: It is not positive definite; its lower triangle is lost, and
            `mirror_upper` with the diagonal restores it.
    """
    size = len(matrix)
    for at in range(0, size, _BLOCK):
        here, rest = slice(at, min(at + _BLOCK, size)), slice(min(at + _BLOCK, size), size)
        done = matrix[here, :at]
        block = matrix[here, here]
        factor = np.linalg.cholesky(np.tril(block) + np.tril(block, -1).T - done @ done.T)
        lower = np.tril_indices(len(factor))
        block[lower] = factor[lower]
        below = matrix[rest, here]
        below -= matrix[rest, :at] @ done.T
        below[:] = below @ np.linalg.inv(factor).T


def invert_lower_in_place(matrix: Float64) -> None:
    """L⁻¹ [K, K] takes the place of the lower triangle L; above the diagonal are zeros then."""
    size = len(matrix)
    starts = range(0, size, _BLOCK)
    for at in starts:
        here = slice(at, min(at + _BLOCK, size))
        matrix[here, here.stop :] = 0.0
        inverse = np.linalg.inv(np.tril(matrix[here, here]))
        row = np.empty((len(inverse), at))
        for left in range(0, at, _BLOCK):
            columns = slice(left, left + _BLOCK)
            row[:, columns] = matrix[here, left:at] @ matrix[left:at, columns]
        matrix[here, :at] = -(inverse @ row)
        matrix[here, here] = np.tril(inverse)


def mirror_upper(matrix: Float64) -> None:
    """Make ``matrix`` symmetric by what is above its diagonal."""
    size = len(matrix)
    for at in range(0, size, _BLOCK):
        here = slice(at, min(at + _BLOCK, size))
        block = matrix[here, here]
        block[:] = np.triu(block) + np.triu(block, 1).T
        matrix[here.stop :, here] = matrix[here, here.stop :].T


def solve_in_place(rows: Float64, inverse: Float64) -> None:
    """``rows`` [N, K] become rows (L Lᵀ)⁻¹, by L⁻¹ [K, K], some rows at a time."""
    size = len(inverse)
    blocks = [slice(at, min(at + _BLOCK, size)) for at in range(0, size, _BLOCK)]
    half = np.empty((min(len(rows), _ROWS), size))
    for at in range(0, len(rows), _ROWS):
        tile = rows[at : at + _ROWS]
        between = half[: len(tile)]
        for one in blocks:
            between[:, one] = tile[:, : one.stop] @ inverse[one, : one.stop].T
        for one in blocks:
            tile[:, one] = between[:, one.start :] @ inverse[one.start :, one]
