"""Types that weights are stored in beside integers with zero points: values, and their scales.

| name | values | columns that share a scale | scale |
|---|---|---|---|
| ``int8`` | -127 to 127 | all | float16 |
| ``fp8`` | E4M3 (Micikevicius et al., 2022, arXiv:2209.05433) | all | float16 |
| ``nf4`` | normal quantiles (Dettmers et al., 2023, arXiv:2305.14314) | 64 | float16 |
| ``mxfp4`` | E2M1 (OCP Microscaling Formats 1.0) | 32 | a power of two (E8M0) |
| ``nvfp4`` | E2M1 | 16 | E4M3, times one float32 of the tensor |

A weight is its value times its scale. Scales are searched: of few values the largest is rare, and
a scale for which it is cut off, or lies on a lower value, may make the others exact (NVFP4: Cook et
al., 2025, Four Over Six, arXiv:2512.02010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from optc.ir.functions.block_fp4 import BLOCK, FP4_MAX, FP8_MAX
from optc.passes.numerics.rounding import Float32
from optc.passes.quantize.static_scales import storable

_E2M1, _E4M3 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn
#: What the largest magnitude of a block becomes, in turn; 6 is the largest value.
_REACHES = (6.0, 7.0, 6.5, 5.5, 5.0, 4.5, 4.0)
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)
_NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


@dataclass(frozen=True)
class Format:
    """A type of few bits.

    Attributes:
        name: In options.
        bits: Of a value.
        group_size: Columns that share a scale; 0 is all of them.
        scale_bits: Of a scale as it is stored.
        levels: All values, ascending, float32.
        nearest: float32 values in units of their scale to the nearest ones, the largest where they
            are beyond.
        scales: From the largest magnitudes [m] of groups, in units of the tensor's scale, to scales
            [m] that the type can store, in turn; the plain one first.
    """

    name: str
    bits: int
    group_size: int
    scale_bits: int
    levels: Float32
    nearest: Callable[[Float32], Float32]
    scales: Callable[[Float32], Iterator[Float32]]

    @property
    def label(self) -> str:
        """For reports: ``nf4 in groups of 64``."""
        groups = f"in groups of {self.group_size}" if self.group_size else "per channel"
        return f"{self.name} {groups}"


def _integers(ratio: Float32) -> Float32:
    return np.clip(np.rint(ratio), np.float32(-127), np.float32(127))


def _e2m1(ratio: Float32) -> Float32:
    bounded = np.clip(ratio, np.float32(-FP4_MAX), np.float32(FP4_MAX))
    return bounded.astype(_E2M1).astype(np.float32)


def _e4m3(ratio: Float32) -> Float32:
    bounded = np.clip(ratio, np.float32(-FP8_MAX), np.float32(FP8_MAX))
    return bounded.astype(_E4M3).astype(np.float32)


def _normal(ratio: Float32) -> Float32:
    """Halfway between two values is the lower one."""
    found: Float32 = _NF4[np.searchsorted((_NF4[1:] + _NF4[:-1]) * np.float32(0.5), ratio)]
    return found


def _per_channel(most: float) -> Callable[[Float32], Iterator[Float32]]:
    def scales(peak: Float32) -> Iterator[Float32]:
        yield storable(peak / np.float32(most))

    return scales


def _shares(peak: Float32) -> Iterator[Float32]:
    for share in _SHARES:
        yield storable(peak * np.float32(share))


def _powers_of_two(peak: Float32) -> Iterator[Float32]:
    """The specification's, 2^(⌊log2 peak⌋ - 2), which cuts off what is beyond 6, and twice that,
    which does not."""
    exponents = np.frexp(peak)[1] - 3
    for more in (0, 1):
        yield np.ldexp(np.float32(1), np.clip(exponents + more, -126, 127))


def _block_scales(peak: Float32) -> Iterator[Float32]:
    for reach in _REACHES:
        bounded = np.minimum(peak / np.float32(reach), np.float32(FP8_MAX))
        yield bounded.astype(_E4M3).astype(np.float32)


def _all_of(dtype: type, bits: int) -> Float32:
    """The finite values of a type, ascending, each once."""
    values = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float32)
    return np.unique(values[np.isfinite(values)])


INT8 = Format(
    *("int8", 8, 0, 16), np.arange(-127, 128, dtype=np.float32), _integers, _per_channel(127)
)
FP8 = Format("fp8", 8, 0, 16, _all_of(_E4M3, 8), _e4m3, _per_channel(FP8_MAX))
NF4 = Format("nf4", 4, 64, 16, _NF4, _normal, _shares)
MXFP4 = Format("mxfp4", 4, 32, 8, _all_of(_E2M1, 4), _e2m1, _powers_of_two)
NVFP4 = Format("nvfp4", 4, BLOCK, 8, _all_of(_E2M1, 4), _e2m1, _block_scales)
#: By name.
FORMATS = {one.name: one for one in (INT8, FP8, NF4, MXFP4, NVFP4)}
