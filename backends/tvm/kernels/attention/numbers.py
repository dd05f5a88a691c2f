"""The arithmetic of attention for each KV type: operands, dot products, and what they mean.

A tile's words (`optc.backends.tvm.kv_layout`) are multiplied by words of a query vector or of
softmax weights, the *operands*, which are repeated in every lane.

- float32: one fused multiply-add a word.
- float16: the same, of the float32 that a word becomes; queries and weights are not rounded.
- bfloat16: queries and weights are rounded to bfloat16; vdpbf16ps adds the two products of a word
  (denormals count as zero), without it two fused multiply-adds do.
- int8: queries and weights become integers of 15 and 14 bits, in units of their largest value's
  1 / 16256, and those two digits of 7 bits, the operand's two *planes*; or queries integers of 8
  bits, one plane, in units of 1 / 127. Products and sums are exact integers on every instruction
  set (vpdpbusd, vpmaddubsw).
- int4: the same, of the int8 that codes, scales and zero points of groups stand for.
"""

from __future__ import annotations

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.float import BFloat16, Float16, Float32
from optc.backends.tvm.kernels.attention.int4 import Int4
from optc.backends.tvm.kernels.attention.int8 import Int8
from optc.backends.tvm.kernels.attention.operands import Numbers
from optc.backends.tvm.kernels.kv.pools import KVShape


def numbers_of(shape: KVShape, isa: Isa, query_bits: int) -> Numbers:
    """The arithmetic of a KV type on an instruction set; ``query_bits`` is that of
    `PagedAttention`."""
    if shape.dtype == "float32":
        return Float32()
    if shape.dtype == "float16":
        return Float16()
    if shape.dtype == "bfloat16":
        return BFloat16(isa)

    planes = 1 if query_bits else 2
    if shape.dtype == "int4":
        return Int4(isa, planes, shape.key_dim, shape.value_dim)
    return Int8(isa, planes)
