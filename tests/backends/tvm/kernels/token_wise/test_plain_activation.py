from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.elementwise import Elementwise
from optc.backends.tvm.kernels.token_wise.hadamard import BlockHadamard
from optc.backends.tvm.kernels.token_wise.plain_activation import ActivationQuantize
from tests.backends.tvm.kernel_cases import (
    TARGETS,
    blank,
    blank_quantized,
    isa_named,
    quantized,
    run,
)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize(("width", "block"), [(21, 0), (64, 0), (100, 64), (384, 64)])
def test_it_is_the_activation_then_the_rounding(
    target: str, name: str, width: int, block: int
) -> None:
    isa = isa_named(target)
    x = np.random.default_rng(width).standard_normal((9, width)).astype(np.float32) * 3
    active = run(Elementwise(name, width), isa, x, blank(9, width))[-1]
    if block:
        active = run(BlockHadamard(width, block), isa, active, blank(9, width))[-1]
    config = ActivationQuantize(width, name, hadamard=block)
    results = run(config, isa, x, *blank_quantized(9, width))[-3:]
    for output, wanted in zip(results, quantized(active), strict=True):
        np.testing.assert_array_equal(output, wanted)
