"""A kernel that writes constants (`optc.backends.tvm.fingerprint`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.fingerprint import FINGERPRINT
from optc.backends.tvm.kernels.matmul.tiles import argument, building


def fingerprint_kernel(words: Sequence[int]) -> Any:
    """out int32 [words]."""
    with building(FINGERPRINT) as builder:
        out = argument("out", (len(words),), "int32")
        for index, word in enumerate(words):
            tir.buffer_store(out, tir.int32(word), [index])
    return builder.get()
