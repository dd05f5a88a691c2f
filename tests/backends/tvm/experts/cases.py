"""Random operands and oracles for the tests of matmuls by experts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.expert_plan import SPAN_ROWS
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from optc.backends.tvm.weights.packing import pack_bfloat16, pack_float32
from tests.backends.tvm.kernel_cases import Array, blank
from tests.backends.tvm.kernel_cases import run as run_kernel
from tests.backends.tvm.matmul_cases import assert_close, int_case, two_level_case, widen
from tests.backends.tvm.weights.unpacking import round_bfloat16

Config = IntExperts | TwoLevelExperts | FloatExperts
Experts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Case:
    """Operands of a matmul by experts.

    Attributes:
        config: The matmul.
        x: Activations by operand, each with a row for every row that there may be.
        weights: Packed, of all experts.
        expected: float64 [E, rows, N]: each row by each expert.
    """

    config: Config
    x: list[Array]
    weights: list[Array]
    expected: Array

    def run(self, isa: Isa, experts: Experts, rows: npt.NDArray[np.int64]) -> Array:
        """The kernel's output [M, N]; ``rows`` are those of x that the kernel gets."""
        x = [operand[rows] for operand in self.x]
        out = blank(experts.size, self.config.n)
        return run_kernel(self.config, isa, *x, *planned(experts), *self.weights, out)[-1]

    def oracle(self, experts: Experts, rows: npt.NDArray[np.int64]) -> Array:
        """The same in float64."""
        chosen = self.config.chosen
        reads = np.repeat(rows, chosen) if self.config.spread else rows
        result: Array = self.expected[experts.ravel(), reads]
        return result


def planned(experts: Experts) -> tuple[Array, Array, Array]:
    """The plan of the rows by expert: order, spans, count."""
    flat = experts.ravel()
    spans = []
    for expert in np.unique(flat):
        first, size = int((flat < expert).sum()), int((flat == expert).sum())
        pieces = -(-size // SPAN_ROWS)
        ends = [first + size * piece // pieces for piece in range(pieces + 1)]
        spans += [(int(expert), *pair) for pair in itertools.pairwise(ends)]
    listed = np.full((flat.size, 3), 99, np.int32)
    listed[: len(spans)] = spans
    order = np.argsort(flat, kind="stable").astype(np.int32)
    return order, listed, np.array([len(spans)], np.int32)


def case_of(config: Config, rows: int, x: list[Array] | None = None) -> Case:
    """Random operands with so many rows of activations, or with those given: x, or q, s, qsum."""
    if isinstance(config, FloatExperts):
        return _float_case(config, rows, x)
    experts = range(config.experts)
    if isinstance(config, TwoLevelExperts):
        two_level = TwoLevelMatmul(config.n, config.k, config.group_size, config.bias, config.bits)
        pairs = [two_level_case(two_level, rows, seed) for seed in experts]
        cases, packed = [case for case, _ in pairs], [weights for _, weights in pairs]
    else:
        plain = IntMatmul(
            *(config.n, config.k, config.bits, config.group_size, config.asymmetric),
            minimums=config.minimums,
            bias=config.bias,
        )
        cases = [int_case(plain, rows, seed) for seed in experts]
        packed = [case.inputs()[3:] for case in cases]
    q, scale = (cases[0].x, cases[0].x_scale) if x is None else (x[0][:, : config.k], x[1])
    cases = [replace(case, x=q, x_scale=scale) for case in cases]
    expected = np.stack([case.expected() for case in cases])
    return Case(config, cases[0].inputs()[:3], _joined(config, packed), expected)


def _float_case(config: FloatExperts, rows: int, given: list[Array] | None) -> Case:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, config.k), np.float32)
    if given is not None:
        (x,) = given
    weights = rng.standard_normal((config.experts, config.n, config.k), np.float32)
    biases = rng.standard_normal((config.experts, config.n), np.float32)
    exact_x, exact, packed = x, weights, [[pack_float32(weight)] for weight in weights]
    if config.weight_dtype == "bfloat16":
        bits = round_bfloat16(weights)
        exact_x, exact = widen(round_bfloat16(x)), widen(bits)
        packed = [[pack_bfloat16(weight)] for weight in bits]
    expected = exact_x.astype(np.float64) @ exact.astype(np.float64).transpose(0, 2, 1)
    if config.bias:
        expected += biases[:, None]
        packed = [[*parts, bias] for parts, bias in zip(packed, biases, strict=True)]
    return Case(config, [x], _joined(config, packed), expected)


def _joined(config: Config, packed: list[list[Array]]) -> list[Array]:
    """The operands of all experts, one after the other; biases in whole blocks."""
    operands = [list(parts) for parts in zip(*packed, strict=True)]
    if config.bias:
        operands[-1] = [np.pad(bias, (0, -len(bias) % 64)) for bias in operands[-1]]
    return [np.concatenate(parts) for parts in operands]


def drawn(config: Config, tokens: int, seed: int) -> Experts:
    """k different experts of each token."""
    rng = np.random.default_rng(seed)
    choices = [rng.permutation(config.experts)[: config.chosen] for _ in range(tokens)]
    return np.array(choices, np.int32)


def check(case: Case, isa: Isa, sqnr_db: float) -> None:
    """Ragged rows, experts with none and all rows on one expert agree with float64, and a row has
    the same bits alone as among any others."""
    config, most = case.config, case.expected.shape[1]
    tokens = most if config.spread else most // config.chosen
    experts = drawn(config, tokens, 0)
    rows = np.arange(most)
    whole = case.run(isa, experts, rows)
    assert_close(whole, case.oracle(experts, rows), sqnr_db)
    mates = np.random.default_rng(1)
    for count in (1, 2, 5, 16, tokens // 2):
        some = np.sort(mates.permutation(tokens)[:count])
        places = (some[:, None] * config.chosen + np.arange(config.chosen)).ravel()
        part = case.run(isa, experts[some], some if config.spread else places)
        np.testing.assert_array_equal(part, whole[places])
    for expert in (0, config.experts - 1):
        same = np.full_like(experts, expert)
        assert_close(case.run(isa, same, rows), case.oracle(same, rows), sqnr_db)
