"""Hadamard matrices: entries ±1, rows orthogonal. Divided by √n and with random signs, rotations
that spread each channel evenly over all.

Sylvester's construction doubles the order. Paley's (1933) gives q + 1 for a prime q of the form
4k + 3, and 2(q + 1) for one of the form 4k + 1. Together: 12, 20, 28, 36, 48, 64, 384, 576, 768,
896, 1152, 2304, 3584, 5120 and so on.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int8 = npt.NDArray[np.int8]


def rotation(order: int, seed: int) -> Float32 | None:
    """A rotation [n, n] = diag(signs) H / √n, of a Hadamard matrix H and random signs; None if no
    construction here gives that order."""
    matrix = hadamard(order)
    if matrix is None:
        return None
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], order) / np.sqrt(order)
    return matrix * signs.astype(np.float32)[:, None]


def hadamard(order: int) -> Int8 | None:
    """A Hadamard matrix [n, n]; None if no construction here gives that order."""
    doublings = 0
    while order >= 1:
        base = _base(order)
        if base is not None:
            for _ in range(doublings):
                base = np.block([[base, base], [base, -base]])
            return base
        if order % 2:
            return None
        order, doublings = order // 2, doublings + 1
    return None


def _base(order: int) -> Int8 | None:
    """One that does not come of doubling another."""
    if order == 1:
        return np.ones((1, 1), np.int8)
    if order % 4 == 0 and _is_prime(order - 1):
        return _paley_one(order - 1)
    if order % 4 == 0 and _is_prime(order // 2 - 1) and (order // 2 - 1) % 4 == 1:
        return _paley_two(order // 2 - 1)
    return None


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def _paley_one(q: int) -> Int8:
    """[q + 1, q + 1], q a prime of the form 4k + 3: I + S, S skew-symmetric."""
    skew = np.eye(q + 1, dtype=np.int8)
    skew[0, 1:], skew[1:, 0] = 1, -1
    skew[1:, 1:] += _jacobsthal(q)
    return skew


def _paley_two(q: int) -> Int8:
    """[2(q + 1), 2(q + 1)], q a prime of the form 4k + 1."""
    conference = np.zeros((q + 1, q + 1), np.int8)
    conference[0, 1:] = conference[1:, 0] = 1
    conference[1:, 1:] = _jacobsthal(q)
    matrix = np.kron(conference, [[1, 1], [1, -1]])
    matrix += np.kron(np.eye(q + 1, dtype=np.int8), [[1, -1], [-1, -1]])
    return matrix.astype(np.int8)


def _jacobsthal(q: int) -> Int8:
    """[q, q]: 1 where i - j is a square modulo q, 0 where it is 0, else -1."""
    character = np.full(q, -1, np.int8)
    character[[n * n % q for n in range(1, q)]] = 1
    character[0] = 0
    places = np.arange(q)
    jacobsthal: Int8 = character[(places[:, None] - places) % q]
    return jacobsthal
