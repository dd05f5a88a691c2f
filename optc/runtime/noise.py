"""Counter-based noise: the same for a request's position whatever else runs, and when.

The noise of token t at output position i of the completion with key (seed, index) is word t % 4
of the Philox 4x64-10 block (Salmon et al., 2011) with counter (t // 4 + 1, i, 0, 0) and key
(seed, index); no state is carried from one draw to the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

_WORD = float(1 << 53)


def uniform(seed: int, index: int, position: int, count: int) -> Float64:
    """[count] uniform values in (0, 1) for the tokens ``0 .. count - 1``."""
    key = np.array([seed, index], np.uint64)
    counter = np.array([0, position, 0, 0], np.uint64)
    # NumPy advances the counter before it takes a block, hence the + 1 above.
    words = np.random.Philox(counter=counter, key=key).random_raw(count)
    # 53 bits, moved to the middle of their step so that neither 0 nor 1 occurs.
    uniforms: Float64 = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / _WORD
    return uniforms


def gumbel(seed: int, index: int, position: int, count: int) -> Float64:
    """[count] standard Gumbel values for the tokens ``0 .. count - 1``.

    The token with the largest ``log p + gumbel`` is a draw from p.
    """
    noise: Float64 = -np.log(-np.log(uniform(seed, index, position, count)))
    return noise
