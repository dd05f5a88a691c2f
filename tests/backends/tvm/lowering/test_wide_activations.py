"""Lowering of activations of 16 bits: rows of two int8 values, whose results are added."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.lowering.walk import times
from optc.backends.tvm.program import Call
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import INT8, OPTIONS, SHAPE
from tests.support.families import model_after

A16 = INT8.replace("quantize-weights", "quantize-weights{activation_bits=16}")


def calls(pipeline: str, **changed: bool) -> list[Call]:
    model = model_after(pipeline, replace(SHAPE, **changed))
    program = lower_model(model, parse_target("x86-64-v4-vnni"), OPTIONS).program
    (step,) = (one for one in program.functions if one.name == "step")
    return list(step.calls)


@pytest.mark.parametrize("bias", [False, True])
def test_every_matmul_has_twice_the_rows_and_a_sum_behind(bias: bool) -> None:
    every = calls(A16, qkv_bias=bias)
    made = {out.name: out for call in every for out in call.outputs}
    places = [i for i, call in enumerate(every) if call.kernel == "int_matmul"]
    assert len(places) == 9
    biased = 0
    for place in places:
        matmul, total = every[place], every[place + 1]
        rows = made[matmul.inputs[0]].shape[0]
        assert rows in ("2*T", "2*R")
        assert [made[name].shape[0] for name in matmul.inputs[1:3]] == [rows] * 2
        assert matmul.outputs[0].shape[0] == rows
        assert matmul.config["bias"] is False  # it would be added twice
        assert total.kernel == "pair_sum"
        assert total.inputs[0] == matmul.outputs[0].name
        assert total.outputs[0].shape == (str(rows)[2:], matmul.config["n"])
        assert len(total.inputs) == 1 + total.config["bias"]
        biased += total.config["bias"]
    assert biased == (2 if bias else 0)
    kernels = ("quantize", "rms_norm", "gated_activation")
    quantizers = [call for call in every if call.kernel in kernels and len(call.outputs) > 2]
    assert {call.config["bits"] for call in quantizers} == {16}


def test_8_bits_say_nothing_of_bits() -> None:
    """So that kernels and engines are those of earlier releases."""
    every = calls(INT8)
    assert not [call for call in every if "bits" in call.config and call.kernel != "int_matmul"
                and "embedding" not in call.kernel]  # fmt: skip
    assert "pair_sum" not in {call.kernel for call in every}


def test_adapters_are_told() -> None:
    shrink = [
        call
        for pipeline in (A16, INT8)
        for call in calls(f"{pipeline},adapters{{max=2,rank=16}}")
        if call.kernel == "adapter_shrink"
    ]
    assert [call.config.get("bits") for call in shrink] == [16] * 8 + [None] * 8


@pytest.mark.parametrize(
    ("factor", "dim", "product"), [(2, 3, 6), (2, "T", "2*T"), (2, "4*H", "8*H")]
)
def test_so_many_times_a_dimension(factor: int, dim: int | str, product: int | str) -> None:
    assert times(factor, dim) == product
