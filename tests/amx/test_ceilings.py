"""The peak of int8 on AMX is that of tiles."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.measuring.ceilings import ITERATIONS, SUMS, peak_name
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from tests.amx.model import has_amx, model


def test_the_peak_of_int8_runs_products_of_tiles(amx: Isa) -> None:
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    name = peak_name("int8")
    module = tvm.IRModule({name: ceiling_kernels(amx)[name]})
    compiled = tvm.compile(module, amx.tvm_target(), tir_pipeline=pipeline.register())
    data = np.array([[255] * 64, [1] * 64], np.uint8)  # -1 as activations
    out = tvm.runtime.tensor(np.full((1, SUMS * 16), 7, np.int32), tvm.cpu())
    model().counts()
    compiled[name](tvm.runtime.tensor(data, tvm.cpu()), out)
    counts = model().counts()
    assert (counts.dots, counts.multiply_adds) == (ITERATIONS, ITERATIONS * 16 * 16 * 64)
    assert (out.numpy()[0, :16] == -64 * ITERATIONS // 4).all()
