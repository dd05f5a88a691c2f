"""Random operands, oracles and compiled kernels for the matmul tests."""

from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", "2")

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.kernels.matmul.int_tiles import int_matmul
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul, float_matmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_sparse import SparseMatmul, sparse_matmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul, two_level_matmul
from optc.backends.tvm.weights.packing import (
    pack_bfloat16,
    pack_columns,
    pack_float32,
    pack_groups,
    pack_int,
)
from optc.backends.tvm.weights.sparse_packing import (
    SLACK,
    ZERO,
    count_nonzeros,
    pack_sparse,
    starts,
)
from optc.system.hardware.platforms import AARCH64
from optc.system.hardware.target import Target, host_features, known_targets
from tests.arm import kernels as arm
from tests.arm.kernels import target_of
from tests.backends.tvm.kernel_cases import DEVICE, blank
from tests.backends.tvm.sparse.sparse_models import SPARSE
from tests.backends.tvm.weights.unpacking import round_bfloat16

Array = npt.NDArray[Any]
Config = IntMatmul | TwoLevelMatmul | SparseMatmul | FloatMatmul

#: Integer scales of groups by bits: 255 / (2 ** bits - 1), so that all values are within int8.
GREATEST_SCALE = {2: 85, 3: 36, 4: 17, 5: 8, 6: 4}

V3 = known_targets()["x86-64-v3"]
V4 = known_targets()["x86-64-v4-vnni"]
V4_BF16 = Target("v4-bf16", "cpu", (*V4.features, "avx512_bf16"))
V4_SPARSE = SPARSE
TARGETS = {target.name: target for target in (V3, V4, V4_BF16, V4_SPARSE)}


def isa_that_runs(name: str) -> Isa:
    """The instruction set of a target; skips the test where this machine lacks it."""
    if name == DEVICE:
        return DEVICE  # type: ignore[no-any-return]
    wanted = {**known_targets(), **TARGETS}[target_of(name)]
    missing = wanted.missing_on(host_features())
    if missing and wanted.processor != AARCH64:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    return isa_of(wanted)


@cache
def compiled(config: Config, isa: Isa) -> Any:
    """The compiled library of one kernel, lowered as those of engines."""
    builders = {
        IntMatmul: int_matmul,
        TwoLevelMatmul: two_level_matmul,
        SparseMatmul: sparse_matmul,
        FloatMatmul: float_matmul,
    }
    module = tvm.IRModule({config.name: builders[type(config)](config, isa)})
    return tvm.compile(module, isa.tvm_target(), tir_pipeline=pipeline.register())


@cache
def assembly(config: Config, isa: Isa) -> str:
    """Its assembly text."""
    return str(compiled(config, isa).mod.inspect_source("s"))


def run(config: Config, isa: Isa, inputs: list[Array]) -> Array:
    """The kernel's output, float32 [T, N]; a guard behind it has to stay as it was."""
    if isa == DEVICE:
        from tests.backends.tvm_cuda import device_kernels

        return device_kernels.run(config, *inputs, blank(len(inputs[0]), config.n))[-1]
    rows = len(inputs[0])
    size = rows * config.n
    if isa.arm:
        operands = [*map(np.ascontiguousarray, inputs), blank(rows, config.n)]
        return arm.run(compiled(config, isa), config.name, isa, operands)[-1]  # type: ignore[no-any-return]
    guarded = tvm.runtime.tensor(np.full(size + 64, np.nan, np.float32), tvm.cpu())
    out = guarded._create_view((rows, config.n))
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cpu()) for array in inputs]
    compiled(config, isa)[config.name](*tensors, out)
    whole = guarded.numpy()
    assert np.isnan(whole[size:]).all()
    return whole[:size].reshape(rows, config.n).copy()


@dataclass(frozen=True)
class IntCase:
    """Operands of an integer matmul as a model has them, not packed."""

    config: IntMatmul
    stored: npt.NDArray[np.uint8]
    scales: Array
    zeros: Array
    bias: Array
    x: Array
    x_scale: Array
    minimums: Array

    def inputs(self, rows: slice = slice(None)) -> list[Array]:
        """The kernel's operands for some of the rows."""
        config = self.config
        x = np.zeros((len(self.x), config.k_padded), np.int8)
        x[:, : config.k] = self.x
        sums = x.reshape(len(x), -1, 32).sum(2, dtype=np.int32)
        operands = [x[rows], self.x_scale[rows], sums[rows], pack_int(self.stored, config.bits)]
        operands.append(pack_columns(self.scales, np.float16 if config.group_size else np.float32))
        if config.asymmetric:
            operands.append(pack_columns(self.zeros, np.uint8))
        if config.minimums:
            operands.append(pack_columns(self.minimums, np.float16))
        if config.bias:
            operands.append(self.bias)
        return operands

    def expected(self) -> Array:
        """The product in float64, from exact integer sums of each group."""
        config = self.config
        width = config.group_size or config.k
        total = np.zeros((len(self.x), config.n))
        for group in range(config.groups):
            part = slice(group * width, min((group + 1) * width, config.k))
            # whole numbers far below 2**53, of which float64 has exact sums, and in no time
            values = self.stored[:, part].astype(np.float64) - self.zeros[:, group, None]
            exact = self.x[:, part].astype(np.float64) @ values.T
            total += exact * self.scales[:, group].astype(np.float64)
            if config.minimums:
                sums = self.x[:, part].astype(np.int64).sum(1)
                total += np.outer(sums, self.minimums[:, group].astype(np.float64))
        total *= self.x_scale[:, None]
        return total + self.bias if config.bias else total


def int_case(config: IntMatmul, rows: int, seed: int = 0) -> IntCase:
    """Random operands; symmetric weights avoid the least value, as quantizers do."""
    rng = np.random.default_rng(seed)
    top = 1 << config.bits
    shape = (config.n, config.groups)
    middle = 0 if config.minimums else top // 2
    zeros = rng.integers(0, top, shape) if config.asymmetric else np.full(shape, middle)
    scales = rng.uniform(0.001, 0.01, shape).astype(np.float16 if config.group_size else np.float32)
    return IntCase(
        config,
        rng.integers(int(not config.asymmetric), top, (config.n, config.k), np.uint8),
        scales,
        zeros,
        rng.standard_normal(config.n, np.float32),
        rng.integers(-127, 128, (rows, config.k), np.int8),
        rng.uniform(0.01, 0.1, rows).astype(np.float32),
        rng.uniform(-0.1, 0.05, shape).astype(np.float16),
    )


def two_level_case(config: TwoLevelMatmul, rows: int, seed: int = 0) -> tuple[IntCase, list[Array]]:
    """The matmul by int8 weights that it stands for, and its own weights, packed."""
    rng = np.random.default_rng(seed)
    shape = (config.n, config.groups)
    most, greatest_scale = (1 << config.bits) - 1, GREATEST_SCALE[config.bits]
    scales = rng.integers(1, greatest_scale + 1, shape)
    scales[:2], scales[2] = greatest_scale, 1
    zeros = rng.integers(np.maximum(most * scales - 127, 0), 129)
    zeros[0], zeros[1] = max(0, most * greatest_scale - 127), 128
    stored = rng.integers(0, most + 1, (config.n, config.k), np.uint8)
    stored[:3, ::3], stored[:3, 1::3] = 0, most
    group = np.arange(config.k) // config.group_size
    steps = stored.astype(np.int64) * scales[:, group] - zeros[:, group]
    assert steps.min() == -128
    assert steps.max() == most * greatest_scale - zeros[0, 0] <= 127
    case = int_case(config.unpacked, rows, seed)
    case = replace(case, stored=(steps + 128).astype(np.uint8))
    packed = [
        pack_int(stored, config.bits),
        pack_groups(scales.astype(np.uint8), (128 - zeros).astype(np.uint8)),
        pack_columns(case.scales, np.float32),
    ]
    return case, packed + [case.bias] * config.bias


def sparse_case(
    config: SparseMatmul, rows: int, zeros: float, seed: int = 0
) -> tuple[IntCase, list[Array]]:
    """The matmul by dense weights that it stands for, and its own weights, packed; a share
    ``zeros`` of them is zero, and some others have the least and the greatest value."""
    rng = np.random.default_rng(seed)
    case = int_case(config.dense, rows, seed)
    stored = case.stored.copy()
    stored[rng.random(stored.shape) < 0.02] = 0
    stored[rng.random(stored.shape) < zeros] = ZERO
    case = replace(case, stored=stored)
    weight = (stored - np.uint8(ZERO)).view(np.int8)
    mask, values = pack_sparse(weight)
    packed = [
        mask,
        starts(count_nonzeros(weight)),
        np.concatenate([values, np.full(SLACK, 77, np.uint8)]),
        pack_columns(case.scales, np.float32),
    ]
    return case, packed + [case.bias] * config.bias


def float_case(config: FloatMatmul, rows: int, seed: int = 0) -> tuple[Array, list[Array], Array]:
    """x float32 [rows, K], the packed operands, and the product in float64."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, config.k), np.float32)
    weight = rng.standard_normal((config.n, config.k), np.float32)
    bias = rng.standard_normal(config.n, np.float32)
    if config.weight_dtype == "float32":
        packed, exact_x, exact_weight = pack_float32(weight), x, weight
    else:
        bits = round_bfloat16(weight)
        packed = pack_bfloat16(bits)
        exact_x, exact_weight = widen(round_bfloat16(x)), widen(bits)
    expected = exact_x.astype(np.float64) @ exact_weight.astype(np.float64).T
    operands: list[Array] = [packed]
    if config.bias:
        operands.append(bias)
        expected = expected + bias
    return x, operands, expected


def widen(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def assert_close(actual: Array, expected: Array, sqnr_db: float) -> None:
    """The signal-to-noise ratio is at least ``sqnr_db``; figures are shown if not."""
    error = actual - expected
    noise = float(np.mean(error**2))
    sqnr = 10 * np.log10(float(np.mean(expected**2)) / max(noise, 1e-300))
    assert sqnr >= sqnr_db, f"SQNR {sqnr:.1f} dB, max error {np.abs(error).max():.3g}"
