"""Cases of LoRA adapters' kernels, judged by float64 and by rows alone."""

from __future__ import annotations

import numpy as np

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.token_wise.adapters import AdapterGrow, AdapterShrink
from tests.backends.tvm.kernel_cases import Array, blank, run, sqnr

SLOTS = 3


def check_shrink(
    isa: Isa, bits: int, adapters: Array, k: int, width: int, least: int = 110
) -> None:
    """Rows of ``adapters`` by float32 (``bits`` 0) or quantized activations; signal to noise is
    ``least`` dB."""
    rows = len(adapters)
    rng = np.random.default_rng([rows, k, width])
    a = rng.standard_normal((SLOTS, k, width)).astype(np.float32)
    each = max(1, bits // 8)  # rows of the operands for each row
    operands: list[Array]
    if bits:
        scale = rng.random(rows * each).astype(np.float32)
        q = rng.integers(-127, 128, (rows * each, -(-k // 32) * 32)).astype(np.int8)
        q[:, k:] = 0
        x = (q[:, :k].astype(np.float64) * scale[:, None]).reshape(rows, each, k).sum(axis=1)
        operands = [q, scale]
    else:
        values = rng.standard_normal((rows, k)).astype(np.float32)
        operands, x = [values], values.astype(np.float64)
    config = AdapterShrink(k, width, bool(bits), bits or 8)
    out = run(config, isa, *operands, adapters, a, blank(rows, width))[-1]
    for row, slot in enumerate(adapters):
        if slot < 0:
            assert np.isnan(out[row]).all()  # not written
            continue
        want = x[row] @ a[slot].astype(np.float64)
        assert sqnr(out[row], want) > least
        alone = run(
            config, isa, *(o[row * each : (row + 1) * each] for o in operands),
            adapters[row : row + 1], a, blank(1, width),
        )[-1]  # fmt: skip
        np.testing.assert_array_equal(alone[0], out[row])


def check_grow(
    isa: Isa, adapters: Array, n: int, rank: int, starts: tuple[int, ...], least: int = 110
) -> None:
    """Rows of ``adapters`` by parts that begin at ``starts``; as above."""
    rows = len(adapters)
    rng = np.random.default_rng([rows, n, rank])
    y = rng.standard_normal((rows, n)).astype(np.float32)
    h = rng.standard_normal((rows, rank * len(starts))).astype(np.float32)
    b = rng.standard_normal((SLOTS, rank, n)).astype(np.float32)
    h[adapters < 0] = np.nan  # what shrink leaves there is not read
    config = AdapterGrow(n, rank, starts)
    out = run(config, isa, y, h, adapters, b, blank(rows, n))[-1]
    for row, slot in enumerate(adapters):
        if slot < 0:
            np.testing.assert_array_equal(out[row], y[row])
            continue
        want = y[row].astype(np.float64)
        for part, (low, high) in enumerate(zip(starts, (*starts[1:], n), strict=True)):
            mine = h[row, part * rank : (part + 1) * rank].astype(np.float64)
            want[low:high] += mine @ b[slot, :, low:high]
        assert sqnr(out[row], want) > least
        one = slice(row, row + 1)
        alone = run(config, isa, y[one], h[one], adapters[one], b, blank(1, n))[-1]
        np.testing.assert_array_equal(alone[0], out[row])
