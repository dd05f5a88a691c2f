"""The peaks of int8 and of bfloat16 on AMX are those of tiles."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.measuring.ceilings import ITERATIONS, SUMS, peak_name
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from tests.amx.model import Counts, has_amx, model


def _run(kind: str, data: np.ndarray, dtype: type, amx: Isa) -> tuple[Counts, np.ndarray]:
    """What the loop counted, and the sums of a row."""
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    name = peak_name(kind)
    module = tvm.IRModule({name: ceiling_kernels(amx)[name]})
    compiled = tvm.compile(module, amx.tvm_target(), tir_pipeline=pipeline.register())
    out = tvm.runtime.tensor(np.full((1, SUMS * 16), 7, dtype), tvm.cpu())
    model().counts()
    compiled[name](tvm.runtime.tensor(data, tvm.cpu()), out)
    return model().counts(), out.numpy()[0, :16]


def test_the_peak_of_int8_runs_products_of_tiles(amx: Isa) -> None:
    data = np.array([[255] * 64, [1] * 64], np.uint8)  # -1 as activations
    counts, sums = _run("int8", data, np.int32, amx)
    assert (counts.dots, counts.multiply_adds) == (ITERATIONS, ITERATIONS * 16 * 16 * 64)
    assert (sums == -64 * ITERATIONS // 4).all()


def test_the_peak_of_bfloat16_runs_products_of_tiles(amx: Isa) -> None:
    data = np.array([[0x3F80] * 32, [0xBF80] * 32], np.uint16).view(np.uint8)  # 1 and -1
    counts, sums = _run("bf16", data, np.float32, amx)
    assert (counts.bf16_dots, counts.bf16_multiply_adds) == (ITERATIONS, ITERATIONS * 16 * 16 * 32)
    assert (sums == -32 * ITERATIONS // 4).all()
