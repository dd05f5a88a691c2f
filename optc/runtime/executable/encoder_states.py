"""Keys and values of an encoder's states, which a sequence of a decoder attends to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EncoderStates:
    """States that a sequence attends to, computed once.

    Attributes:
        key: Equal where the states are.
        layers: Keys f32[n, Hkv*Dk] and values f32[n, Hkv*Dv] of each layer, in order.
    """

    key: str
    layers: tuple[Float32, ...]

    @property
    def count(self) -> int:
        """n."""
        return len(self.layers[0])
