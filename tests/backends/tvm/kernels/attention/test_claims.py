"""Claims divide work among threads: every index is done, and once."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.claims import CLAIM_IR, for_claimed
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.kernels.dsl.script import Expr, bind, kernel, store
from tests.arm.kernels import only_here
from tests.backends.tvm.kernel_cases import TARGETS, isa_named  # two threads, by its environment

#: Rounds of one index's work, for each of those that cost the most.
_LONG = 20_000


def _counting() -> tvm.tirx.PrimFunc:
    """costs i32 [n], done i32 [n]: adds to ``done`` once for each unit of an index's cost."""
    with kernel("main") as builder:
        count = builder.size()
        costs = builder.argument("costs", (count,), "int32")
        done = builder.argument("done", (count,), "int32")

        def work(index: Expr) -> None:
            with tir.serial(0, bind(costs[index])):
                store(done, bind(done[index]) + 1, index)

        with tir.attr(0, "pragma_import_llvm", CLAIM_IR):
            for_claimed(count, work)
    return builder.finish()


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 127, 1000])
@pytest.mark.parametrize("costs", ["even", "first", "last", "some"])
def test_every_index_is_done_once(count: int, costs: str) -> None:
    only_here()
    isa = isa_named(TARGETS[1])
    module = tvm.IRModule({"main": _counting().with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, isa.tvm_target(), tir_pipeline=pipeline.register())
    index = np.arange(count)
    each = {
        "even": np.full(count, 3),
        "first": np.where(index < count // 4, _LONG, 1),
        "last": np.where(index >= count * 3 // 4, _LONG, 1),
        "some": np.where(index % 7 == 3, _LONG, 2),
    }[costs].astype(np.int32)
    for _ in range(5):
        done = tvm.runtime.tensor(np.zeros(count, np.int32))
        compiled["main"](tvm.runtime.tensor(each), done)
        np.testing.assert_array_equal(done.numpy(), each)
