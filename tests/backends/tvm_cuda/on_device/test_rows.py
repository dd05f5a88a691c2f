"""Row kernels on this machine's CUDA device, by the tests of the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.tvm.kernel_cases import DEVICE
from tests.backends.tvm.kernels.kv import test_head_concat as head_concat
from tests.backends.tvm.kernels.token_wise import test_activation as activation
from tests.backends.tvm.kernels.token_wise import test_adapters as adapters
from tests.backends.tvm.kernels.token_wise import test_elementwise as elementwise
from tests.backends.tvm.kernels.token_wise import test_embedding as embedding
from tests.backends.tvm.kernels.token_wise import test_hadamard as hadamard
from tests.backends.tvm.kernels.token_wise import test_layer_norm as layer_norm
from tests.backends.tvm.kernels.token_wise import test_norm as norm
from tests.backends.tvm.kernels.token_wise import test_quantize as quantize

#: What a case with another block, width or layout shows.
LONG = pytest.mark.long


@pytest.mark.parametrize("width", [8, 100, pytest.param(576, marks=LONG)])
def test_quantization_equals_numpy_exactly(width: int) -> None:
    quantize.test_equals_numpy_exactly(DEVICE, width)


@pytest.mark.parametrize(("width", "residual"), [(21, True), (576, False)])
def test_rms_norm(width: int, residual: bool) -> None:
    norm.test_rms_norm(DEVICE, width, residual)


@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(bias: bool) -> None:
    layer_norm.test_against_float64(DEVICE, bias, 37)


def test_head_rms_norm() -> None:
    norm.test_head_rms_norm(DEVICE)


@pytest.mark.parametrize("shared", [pytest.param(True, marks=LONG), False])
def test_heads_side_by_side(shared: bool) -> None:
    head_concat.test_heads_side_by_side(DEVICE, 17, 3, shared)


@pytest.mark.parametrize("name", activation.ORACLES)
def test_gated_activation(name: str) -> None:
    activation.test_against_float64(DEVICE, name, 40)


@pytest.mark.parametrize(
    ("alpha", "limit", "shift"), [(1.702, 7.0, 1.0), pytest.param(1.0, 4.0, 0.0, marks=LONG)]
)
def test_clamped_gates(alpha: float, limit: float, shift: float) -> None:
    activation.test_clamped_against_float64(DEVICE, alpha, limit, shift)


@pytest.mark.parametrize(
    ("operation", "oracle", "low", "high"),
    [("exp", np.exp, -80.0, 80.0), ("tanh", np.tanh, -12.0, 12.0)],
)
def test_functions(operation: str, oracle: object, low: float, high: float) -> None:
    elementwise.test_functions_to_two_parts_in_ten_million(DEVICE, operation, oracle, low, high)


def test_binary_scale_and_softcap() -> None:
    elementwise.test_binary_scale_and_softcap(DEVICE)


def test_tables_and_row_gather() -> None:
    embedding.test_tables_and_row_gather(DEVICE)


def test_packed_bfloat16_head() -> None:
    embedding.test_packed_bfloat16_head(DEVICE, 41)


@pytest.mark.parametrize(
    ("bits", "group", "asymmetric", "width"),
    [(8, 0, False, 50), (8, 32, True, 64), (4, 64, False, 72), (4, 0, False, 41)],
)
def test_packed_head(bits: int, group: int, asymmetric: bool, width: int) -> None:
    embedding.test_packed_head(DEVICE, bits, group, asymmetric, width)


#: Whole blocks and one more behind them, in runs of four values and of one: what a butterfly adds
#: lies in one thread, in a warp, in two warps, in two runs.
@pytest.mark.parametrize(
    ("width", "block", "inverse"),
    [
        *[(17, 16, True), (577, 64, False), (330, 256, True), (640, 256, False)],
        *(pytest.param(*one, marks=LONG) for one in [(96, 16, False), (100, 64, True)]),
        pytest.param(1028, 256, True, marks=LONG),
    ],
)
def test_rows_are_rotated(width: int, block: int, inverse: bool) -> None:
    hadamard.test_rows_are_rotated(DEVICE, width, block, inverse)


@pytest.mark.parametrize(
    ("width", "block"), [(100, 16), (257, 256), pytest.param(576, 64, marks=LONG)]
)
def test_quantization_rotates_before_it_rounds(width: int, block: int) -> None:
    hadamard.test_quantization_rotates_before_it_rounds(DEVICE, width, block, 8)


def test_norms_rotate_before_they_round() -> None:
    hadamard.test_norms_give_the_bits_of_the_kernels_apart(DEVICE, True)


@pytest.mark.parametrize("block", [pytest.param(64, marks=LONG), 256])
def test_gated_activations_rotate_before_they_round(block: int) -> None:
    hadamard.test_gated_activations_give_the_bits_of_the_kernels_apart(DEVICE, block)


@pytest.mark.covering
@pytest.mark.parametrize("bits", [0, 8])
@pytest.mark.parametrize(("rows", "k", "width"), [(1, 64, 16), (5, 41, 48)])
def test_adapters_shrink(bits: int, rows: int, k: int, width: int) -> None:
    adapters.test_shrink(DEVICE, bits, rows, k, width)


@pytest.mark.parametrize(
    ("rows", "n", "rank", "starts"), [(4, 200, 32, (0, 100, 171)), (2, 7, 16, (0, 3))]
)
def test_adapters_grow(rows: int, n: int, rank: int, starts: tuple[int, ...]) -> None:
    adapters.test_grow(DEVICE, rows, n, rank, starts)
