"""The question to the builder's process, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

#: Least, likeliest and largest shape of an input.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Profile:
    """Shapes that a part of an engine is built for.

    Attributes:
        name: ``decode``, ``verify`` or ``prefill``.
        shapes: Of every input with a dynamic dimension, by name.
    """

    name: str
    shapes: dict[str, Shapes]


@dataclass(frozen=True)
class BuildJob:
    """One engine to build.

    Attributes:
        model: The ONNX file.
        engine: Where the engine is written.
        table: Where the layer table is written, as TensorRT prints it.
        architectures: GPUs that it is for (``sm_89``), all in one engine.
        profiles: What its inputs look like, one part of the engine each.
        package: Which of `optc.backends.tensorrt.provider.PACKAGES` builds it.
        sparse: Some weights are pruned 2:4: the builder may take kernels for that.
    """

    model: str
    engine: str
    table: str
    architectures: tuple[str, ...]
    profiles: tuple[Profile, ...]
    package: str
    sparse: bool = False

    def to_json(self) -> str:
        """For the builder's process."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> BuildJob:
        """The job that `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)
