"""Counter-based noise: the same for a request's position whatever else runs, and when.

The noise of token t at output position i of the completion with key (seed, index) is word t % 4
of the Philox 4x64-10 block (Salmon et al., 2011) with counter (t // 4 + 1, i, 0, 0) and key
(seed, index); no state is carried from one draw to the next. The token with the largest
``log p + gumbel`` is a draw from p.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from optc.runtime.sampling.sampler_math import Float64, log

Words = npt.NDArray[np.uint64]

#: A word's upper 52 bits are its uniform value: with the half step a float64 holds it exactly.
_DROPPED_BITS = 12
_STEPS = 1 << 52


def words(seed: int, index: int, position: int, count: int) -> Words:
    """[count] random words of the tokens ``0 .. count - 1``."""
    key = np.array([seed, index], np.uint64)
    counter = np.array([0, position, 0, 0], np.uint64)
    # NumPy advances the counter before it takes a block, hence the + 1 above.
    drawn: Words = np.random.Philox(counter=counter, key=key).random_raw(count)
    return drawn


def gumbel(drawn: Words) -> Float64:
    """Standard Gumbel values of random words, same shape."""
    # Moved to the middle of their step, so that the uniform values are neither 0 nor 1.
    uniform = ((drawn >> np.uint64(_DROPPED_BITS)).astype(np.float64) + 0.5) / _STEPS
    return -log(-log(uniform))


def least_word(noise: float) -> np.uint64:
    """A word such that every smaller one has Gumbel noise below ``noise``."""
    uniform = math.exp(-math.exp(-noise)) if noise > -6 else 0.0
    # One step lower, against rounding.
    return np.uint64(max(0, int(uniform * _STEPS) - 2) << _DROPPED_BITS)
