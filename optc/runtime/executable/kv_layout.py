"""The layouts of keys and values in engines: in pages, or one slot for each sequence."""

from __future__ import annotations

from typing import Literal, Protocol

KVLayout = Literal["paged", "slots"]


class HasLayout(Protocol):
    """The part of an `optc.runtime.executable.executable.StepInterface` that is needed here."""

    @property
    def kv_layout(self) -> KVLayout:
        """See `StepInterface`."""
        ...

    @property
    def block_multiple(self) -> int:
        """See `StepInterface`."""
        ...


def block_size_for(spec: HasLayout, longest: int, about: int) -> int:
    """A KV block size in tokens that suits the engine, where sequences have up to ``longest``.

    Pages have ``about`` so many tokens, at least the engine's own multiple. A slot holds all of a
    sequence, which therefore is a single block.
    """
    if spec.kv_layout == "slots":
        return longest
    return spec.block_multiple * max(1, about // spec.block_multiple)
