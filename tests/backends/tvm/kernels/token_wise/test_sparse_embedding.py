"""Lookup of tokens in a sparse head: the rows of the dense one."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.token_wise.embedding import QuantizedEmbedding
from optc.backends.tvm.kernels.token_wise.sparse_embedding import SparseEmbedding
from optc.backends.tvm.weights.packing import pack_columns, pack_int
from optc.backends.tvm.weights.sparse_packing import (
    SLACK,
    count_nonzeros,
    pack_sparse,
    starts,
)
from tests.backends.tvm.kernel_cases import TARGETS, blank, isa_named, run


@pytest.fixture(params=TARGETS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return isa_named(request.param)


@pytest.mark.covering
@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("width", [64, 50, 577])
def test_rows_have_the_bits_of_the_dense_head(isa: Isa, width: int, zeros: float) -> None:
    rng = np.random.default_rng(width)
    weight = rng.integers(-128, 128, (130, width), np.int8)
    weight[rng.random(weight.shape) < zeros] = 0
    scale = pack_columns(rng.standard_normal(130, np.float32), np.float32)
    tokens = np.array([0, 129, 64, 63, 15, 16, 64, 101], np.int32)
    mask, values = pack_sparse(weight)
    padded = np.concatenate([values, np.full(SLACK, 77, np.uint8)])
    operands = [mask, starts(count_nonzeros(weight)), padded, scale]
    out = run(SparseEmbedding(130, width), isa, tokens, *operands, blank(8, width))[-1]
    dense = [pack_int(weight.view(np.uint8) + np.uint8(128), 8), scale, blank(8, width)]
    expected = run(QuantizedEmbedding(130, width, 8), isa, tokens, *dense)[-1]
    np.testing.assert_array_equal(out, expected)
    scales = np.ascontiguousarray(scale.transpose(0, 2, 1)).reshape(-1)[:130]
    np.testing.assert_array_equal(out, (weight.astype(np.float32) * scales[:, None])[tokens])
