"""The contract between requests of a decoder that attends to an encoder, and who runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """The states of an encoder that one request attends to.

    Attributes:
        tensors: By name, ``cross_0`` …, as `ImportedEncoderDecoder` says,
            each f32[requests, heads, positions, D].
        row: The request's.
    """

    tensors: Mapping[str, Array]
    row: int

    def rows(self) -> list[Float32]:
        """Keys and values of each layer in order, [positions, heads * D]."""
        count = sum(name.startswith("cross_") for name in self.tensors)
        found = (self.tensors[f"cross_{index}"][self.row] for index in range(count))
        return [one.transpose(1, 0, 2).reshape(one.shape[1], -1) for one in found]


class Decoding(Protocol):
    """A request: tokens that are read, and what their logits lead to.

    Attributes:
        encoded: What it attends to.
        prompt: The tokens that it begins with, at least one.
        heard: Place in the prompt from which on logits are wanted.
    """

    encoded: Encoded
    prompt: Sequence[int]
    heard: int

    def take(self, logits: Float32) -> Sequence[int]:
        """The tokens to go on with; empty where the request ends.

        Args:
            logits: f32[n, V] behind the tokens of the prompt from ``heard`` on, later behind each
                of those that were given last. They may be changed, and stay as they are.
        """
        ...
