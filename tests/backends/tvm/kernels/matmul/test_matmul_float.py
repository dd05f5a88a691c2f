"""float32 and bfloat16 matmul kernels against float64."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.errors import UnsupportedError
from tests.backends.tvm.matmul_cases import assert_close, float_case, isa_that_runs, run

CONFIGS = [
    FloatMatmul(192, 256),
    FloatMatmul(100, 77, bias=True),
    FloatMatmul(128, 256, "bfloat16"),
    FloatMatmul(100, 77, "bfloat16", bias=True),
]
ISAS = ["x86-64-v3", "x86-64-v4-vnni", "v4-bf16"]


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_float64_and_rows_keep_their_bits(config: FloatMatmul, target: str) -> None:
    isa = isa_that_runs(target)
    x, operands, expected = float_case(config, rows=37)
    whole = run(config, isa, [x, *operands])
    assert_close(whole, expected, 115)
    counts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13]
    for start, stop in [(36, 37), *((count, 2 * count) for count in counts)]:
        part = run(config, isa, [x[start:stop], *operands])
        np.testing.assert_array_equal(part, whole[start:stop])


def test_many_rows_are_rounded_to_bfloat16_alike() -> None:
    config = CONFIGS[2]
    isa = isa_that_runs("x86-64-v3")
    x, operands, expected = float_case(config, rows=150)
    whole = run(config, isa, [x, *operands])
    assert_close(whole, expected, 115)
    np.testing.assert_array_equal(run(config, isa, [x[149:], *operands]), whole[149:])


@pytest.mark.parametrize("target", ISAS)
def test_activations_halfway_between_bfloat16_values_round_to_even(target: str) -> None:
    config = FloatMatmul(128, 256, "bfloat16")
    _, operands, _ = float_case(config, rows=1)
    halfway = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20])
    even = np.float32([1, 1 + 2**-6, -1, 1 + 2**-7])
    isa = isa_that_runs(target)
    outputs = [run(config, isa, [np.tile(row, (1, 64)), *operands]) for row in (halfway, even)]
    np.testing.assert_array_equal(*outputs)


def test_refuses_weight_types_without_a_kernel() -> None:
    with pytest.raises(UnsupportedError, match="weights of type float16") as caught:
        FloatMatmul(64, 64, "float16")
    assert caught.value.hint == "float32 or bfloat16"
