"""A point of the plot, and the honest count of its bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Float32 arithmetic on dequantized weights; the engine's own numbers (activations, KV); an engine
#: on a quantized file as it came, whose weights were not rounded again.
NUMERICS = ("weights", "engine", "given grid")
_HEAD = ("model.embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True)
class Stored:
    """One tensor as a tool stores it: its scales, zero points and padding are its bytes too.

    Attributes:
        values: Number of weights.
        bytes: All bytes that hold them.
        format: The tool's name of the format.
    """

    values: int
    bytes: int
    format: str


@dataclass(frozen=True)
class Point:
    """A quantized model.

    Attributes:
        who: ``optc`` or a peer.
        label: Recipe or format, and how it was made where there are several ways.
        numerics: One of `NUMERICS`.
        bytes: Of all weights: body, embedding, head and norms.
        bits_all: Bits of each of the model's parameters; a tied table is counted once.
        bits_body: Bits of each weight of the layers' matrices; None where files do not say it.
        figures: What `Evaluator` gives, or the gates of an engine.
        formats: Weights of the layers' matrices by format, so that a fallback is seen.
        note: What else one must know.
    """

    who: str
    label: str
    numerics: str
    bytes: int
    bits_all: float
    bits_body: float | None
    figures: dict[str, float]
    formats: dict[str, int] = field(default_factory=dict)
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of a point: a later run replaces the point that has the same."""
        return self.who, self.label, self.numerics

    @property
    def kl(self) -> float:
        """Mean KL in nats."""
        return self.figures["kl_mean"]

    def as_json(self) -> dict[str, Any]:
        """As it stands in the result file; figures to five digits."""
        found = asdict(self)
        for name in ("bits_all", "bits_body"):
            found[name] = None if found[name] is None else round(found[name], 4)
        found["figures"] = {k: float(f"{v:.5g}") for k, v in self.figures.items()}
        return found


@dataclass(frozen=True)
class Size:
    """Bytes of a model's weights, all of them and those of the layers' matrices."""

    bytes: int
    bits_all: float
    bits_body: float
    formats: dict[str, int]


def is_body(name: str, shape: tuple[int, ...]) -> bool:
    """True if a tensor is a matrix of a layer."""
    return len(shape) == 2 and name not in _HEAD


def count(stored: Mapping[str, Stored], shapes: Mapping[str, tuple[int, ...]]) -> Size:
    """The bytes of ``stored`` tensors, those of a model with these ``shapes``.

    ``stored`` may hold more than the model has (an untied head, scales that a tool inserted);
    they count as bytes, and their values do not, so that a copy makes bits more, not fewer.
    Vectors need not be named: some tools fold norms into constants of other names.

    Raises:
        ValueError: A matrix of the model is not stored, or with another number of values.
    """
    for name, shape in shapes.items():
        if len(shape) != 2:
            continue
        if name not in stored:
            raise ValueError(f"{name} is not stored")
        if stored[name].values != math.prod(shape):
            raise ValueError(f"{name} is {shape}, {stored[name].values} values are stored")
    body = {name for name, shape in shapes.items() if is_body(name, shape)}
    total = sum(one.bytes for one in stored.values())
    parameters = sum(math.prod(shape) for shape in shapes.values())
    formats: dict[str, int] = {}
    for name in sorted(body):
        one = stored[name]
        formats[one.format] = formats.get(one.format, 0) + one.values
    return Size(
        total,
        8 * total / parameters,
        8 * sum(stored[n].bytes for n in body) / sum(stored[n].values for n in body),
        formats,
    )


def merged(old: list[Point], new: list[Point]) -> list[Point]:
    """``old`` with what ``new`` measured again in its place, by who, numerics and bytes."""
    found = {point.key: point for point in [*old, *new]}
    return sorted(found.values(), key=lambda p: (p.who != "optc", p.who, p.numerics, p.bytes))
