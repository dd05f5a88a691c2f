"""The interface of engines of decoders that attend to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from optc.runtime.executable.executable import Float32, Int32, StepInterface


@runtime_checkable
class EncodedExecutable(Protocol):
    """The further abilities of an engine whose ``spec.encoded`` is not 0: a decoder that attends to
    an encoder.

    In the last KV group ``kv_lengths`` are the states of each sequence, all of which its rows see,
    and slots are -1.
    """

    spec: StepInterface

    def write_encoded(self, slots: Int32, states: Sequence[Float32]) -> None:
        """Put keys and values of n states into ``slots`` [n] of the last group's pools: keys [n,
        Hkv*Dk] and values [n, Hkv*Dv] of each layer of the group, in order.

        Raises:
            optc.errors.InputError: No pools were allocated, a slot lies outside of them, or a shape
                does not fit.
        """
        ...
