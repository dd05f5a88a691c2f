"""The quantization of one weight: `Scheme`."""

from __future__ import annotations

from dataclasses import dataclass

#: Elements that are quantized at a time: 1 MiB in float32, so that they and as much scratch stay in
#: the processor's cache, and an operation takes long enough beside the interpreter's lock, which
#: threads wait for between any two.
CHUNK_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Scheme:
    """The quantization of one weight.

    Attributes:
        bits: 8 or 4; 6 to 2 with integer scales.
        group_size: Columns that share a scale; 0 is all of them (per channel).
        symmetric: Signed values without zero points.
        integer_scales: Groups have an integer scale each and share their channel's float scale
            (`two_level`).
        float_zeros: Zero points are floats, as some checkpoints have them.
        zeros: Zero is a value of every group, and weights that are exactly zero, because they were
            pruned, stay so.
    """

    bits: int
    group_size: int
    symmetric: bool
    integer_scales: bool = False
    float_zeros: bool = False
    zeros: bool = False

    @property
    def label(self) -> str:
        """For reports: ``int4 groups of 32 asymmetric, integer``, ``int8 per channel``."""
        spread = f"groups of {self.group_size}" if self.group_size else "per channel"
        zero_points = "" if self.symmetric else " asymmetric"
        zero_points += " by floats" * self.float_zeros
        kind = f"int{self.bits} {spread}{zero_points}{', integer' * self.integer_scales}"
        return f"{kind}{', zeros kept' * self.zeros}"

    @property
    def spreads(self) -> bool:
        """True if groups are quantized as columns in memory: scales then follow one another along
        the rows, which is several times faster than a scale a row where groups are short."""
        return bool(self.group_size) or self.bits == 4

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        if not self.symmetric:
            return 0, (1 << self.bits) - 1
        return (-127, 127) if self.bits == 8 else (-8, 7)
