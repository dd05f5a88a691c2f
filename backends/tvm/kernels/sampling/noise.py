"""The random words of `optc.runtime.sampling.noise`: Philox 4x64-10 (Salmon et al., 2011)."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, bind, register, store
from optc.backends.tvm.kernels.sampling.math import word

#: Tokens that share a block of the generator.
BLOCK = 4
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_HIGH_NAME = "optc_multiply_high"
#: TIR has no integers of 128 bits; kernels that draw words import this function.
HIGH_IR = f"""
define i64 @{_HIGH_NAME}(i64 %a, i64 %b) #0 {{
  %x = zext i64 %a to i128
  %y = zext i64 %b to i128
  %p = mul i128 %x, %y
  %h = lshr i128 %p, 64
  %r = trunc i128 %h to i64
  ret i64 %r
}}
attributes #0 = {{ alwaysinline nounwind readnone }}
"""


@dataclass(frozen=True)
class Noise:
    """The noise key of a row: three uint64 scalars."""

    seed: Expr
    completion: Expr
    position: Expr

    def block(self, index: Expr, out: Expr) -> None:
        """Write the words of tokens ``4 * index`` … ``4 * index + 3`` to ``out`` uint64 [4]."""
        start = (tir.cast(index, "uint64") + word(1), self.position, word(0), word(0))
        # Kept in memory for the eyes of TVM, whose analysis of integers would grow exponentially.
        keys = [register(key, "uint64", 1) for key in (self.seed, self.completion)]
        for lane, value in enumerate(start):
            store(out, value, lane)
        with tir.unroll(0, _ROUNDS):
            low, high = _multiply(bind(out[0]), _MULTIPLIERS[0])
            low2, high2 = _multiply(bind(out[2]), _MULTIPLIERS[1])
            first, third = bind(high2 ^ out[1] ^ keys[0].get()), bind(high ^ out[3] ^ keys[1].get())
            for lane, value in enumerate((first, low2, third, low)):
                store(out, value, lane)
            for key, step in zip(keys, _KEY_STEPS, strict=True):
                key.set(key.get() + word(step))


def _multiply(value: Expr, factor: int) -> tuple[Expr, Expr]:
    """Low and high half of a product of 64 bits by 64 bits."""
    high = tir.call_pure_extern("uint64", _HIGH_NAME, value, word(factor))
    return bind(value * word(factor)), bind(high)
