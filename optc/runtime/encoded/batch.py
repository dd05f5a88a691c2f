"""Steps of a decoder that attends to an encoder: a batch of requests and its keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
#: Outputs by name for inputs by name.
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


class DecoderBatch:
    """Requests that are decoded together; all have as many tokens.

    Keys and values of cross attention are those of the encoder, computed once for each request, and
    are given to every step as they are. Those of the tokens grow with each step.

    Args:
        decoder: As `optc.importer.tensors.encoder_decoder.ImportedEncoderDecoder.decoder`.
        cross: By name, each f32[requests, heads, positions, D]; and other inputs by request that
            stay, such as a mask of the positions.
    """

    def __init__(self, decoder: Run, cross: Mapping[str, Array]) -> None:
        self._decoder = decoder
        self._cross = dict(cross)
        # before the first token; a decoder has as many heads for both attentions
        self._past = {
            name.replace("cross_", "past_"): tensor[:, :, :0]
            for name, tensor in cross.items()
            if name.startswith("cross_")
        }

    @property
    def requests(self) -> int:
        """The number of requests."""
        return len(next(iter(self._cross.values())))

    def step(self, tokens: Int64) -> Float32:
        """Logits f32[requests, T, V] behind each of the next tokens [requests, T]."""
        found = self._decoder(self.inputs(tokens))
        self._past = {name: found[f"{name}_out"] for name in self._past}
        logits: Float32 = found["logits"]
        return logits

    def inputs(self, tokens: Int64) -> dict[str, Array]:
        """The decoder's inputs for the next tokens [requests, T]."""
        return {"input_ids": tokens, **self._past, **self._cross}

    def keep(self, rows: Int64) -> None:
        """Go on with these requests alone."""
        for tensors in (self._cross, self._past):
            for name, tensor in tensors.items():
                tensors[name] = tensor[rows]
