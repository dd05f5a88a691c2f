"""The best speeds of the GPU, measured through PyTorch: read bandwidth and peaks by type."""

from __future__ import annotations

from collections.abc import Callable

import torch

#: Bytes that are read: many times any second-level cache.
_READ_BYTES = 4 << 30
#: Rows, columns and depth of the square matmuls.
_SIZE = 8192
#: Samples of each; the best counts.
_ROUNDS = 20


def measure_peaks() -> dict[str, float]:
    """``read`` in bytes/s; ``bf16``, ``int8`` and ``fp32`` (without TF32) in operations/s."""
    torch.backends.cuda.matmul.allow_tf32 = False
    read = _read_bandwidth()
    a, b = (torch.randn(_SIZE, _SIZE, device="cuda") for _ in range(2))
    ops = 2 * _SIZE**3
    peaks = {"read": read, "fp32": ops / _best_seconds(lambda: torch.mm(a, b))}
    narrow, other = a.bfloat16(), b.bfloat16()
    peaks["bf16"] = ops / _best_seconds(lambda: torch.mm(narrow, other))
    x, y = (torch.randint(-127, 128, (_SIZE, _SIZE), device="cuda").to(torch.int8) for _ in "xy")
    peaks["int8"] = ops / _best_seconds(lambda: torch._int_mm(x, y.t()))
    return peaks


def _read_bandwidth() -> float:
    values = torch.ones(_READ_BYTES // 4, device="cuda")
    return _READ_BYTES / _best_seconds(lambda: torch.sum(values))


def _best_seconds(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS + 3):  # the first ones warm up
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best
