"""How much a pass computes: what its time is predicted from."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Work:
    """Amounts of work, which add up.

    Attributes:
        float32: Multiply-adds in float32.
        bfloat16: Of bfloat16, added in float32.
        int8: Of int8, added as integers.
        float64: In float64.
        steps: Element-wise operations on weights: rounding, searches of ranges.
        alone: Such operations in one thread, while the others have nothing to do.
    """

    float32: float = 0.0
    bfloat16: float = 0.0
    int8: float = 0.0
    float64: float = 0.0
    steps: float = 0.0
    alone: float = 0.0

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * getattr(self, one.name) for one in fields(self)))

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))
