"""Medusa's heads of a loaded engine: a function of their own, replayed as steps are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.input_memory import aligned
from optc.backends.tvm.loaded.staging import StepInputs
from optc.backends.tvm.replay.recording import tensors_of
from optc.backends.tvm.replay.replay import Replays
from optc.errors import InputError
from optc.runtime.executable.executable import Float32, Int32

#: Numbers of rows whose buffers are kept.
_CACHED = 64


class Heads:
    """Guesses from the hidden states of an engine's last step. Use it from one thread.

    Args:
        run: The engine's function for the heads.
        weights: Its tensors.
        wrap: Makes a tensor of an array.
        replays: Runs it without the virtual machine where its shape comes again; None never does.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        weights: Sequence[Any],
        wrap: Callable[[Any], Any],
        replays: Replays | None,
    ) -> None:
        self._run = run
        self._weights = weights
        self._wrap = wrap
        self._replays = replays
        self._inputs: dict[int, StepInputs] = {}
        self._hidden: Float32 | None = None

    def note(self, hidden: Float32 | None) -> None:
        """Take note of the last step's hidden states [R, D]; None if there is no step."""
        self._hidden = hidden

    def guess(self, rows: Int32) -> Float32:
        """Logits [K * n, V] of the heads for ``rows`` [n] of the last step, valid until the next
        call.

        Raises:
            InputError: No step was run.
        """
        if self._hidden is None:
            raise InputError("no hidden states: no step was run", where="guess")
        inputs = self._inputs_of(len(rows), self._hidden.shape[1])
        np.take(self._hidden, rows, axis=0, out=inputs.views[0].view(np.float32), mode="clip")
        replayed = self._replays.step(inputs, self._weights) if self._replays else None
        results = replayed or tensors_of(self._run(*inputs.tensors, *self._weights))
        logits: Any = np.from_dlpack(results[0])
        guesses: Float32 = logits
        return guesses

    def _inputs_of(self, count: int, width: int) -> StepInputs:
        inputs = self._inputs.get(count)
        if inputs is None:
            if len(self._inputs) >= _CACHED:
                self._inputs.clear()
            chosen = aligned(count * width).reshape(count, width)
            tensors = [self._wrap(chosen.view(np.float32))]
            inputs = self._inputs[count] = StepInputs((count,), [chosen], tensors)
        return inputs
