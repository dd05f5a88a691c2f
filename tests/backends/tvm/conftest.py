from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from optc.system.hardware.target import host_features, known_targets
from tests.backends.tvm.engine_driver import (
    BF16,
    FUSED,
    FUSED_KV4,
    FUSED_KV8,
    FUSED_KV16,
    INT4,
    INT4_A16,
    INT4_TWO_LEVEL,
    INT6_MIXED,
    INT8,
    Engine,
    build_once,
)

_VNNI = known_targets()["x86-64-v4-vnni"]
#: The named target of the most instructions that this machine has.
NAMED = "x86-64-v3" if _VNNI.missing_on(host_features()) else _VNNI.name
#: Every engine that the tests share: pipeline and target. Two are built at a time, and kernels that
#: one has made come from the cache for the next: neighbours here have few kernels in common, or
#: both would compile them.
ENGINES = {
    "fp32": (FUSED, "native"),
    "fp32-kv8": (FUSED_KV8, "native"),
    "int8-v3": (INT8, "x86-64-v3"),
    "bf16": (BF16, "native"),
    "fp32-kv16": (FUSED_KV16, "native"),
    "int8": (INT8, "native"),
    "fp32-kv4": (FUSED_KV4, "native"),
    "int4": (INT4, NAMED),
    "int4-two-level": (INT4_TWO_LEVEL, NAMED),
    "int4-a16": (INT4_A16, NAMED),
    "int6-mixed": (INT6_MIXED, NAMED),
}


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Engine]:
    """Engines by name, all built at once in the background (in processes of their own)."""
    pool = ThreadPoolExecutor(2)
    futures: dict[str, Future[Engine]] = {}

    def get(wanted: str) -> Engine:
        if not futures:
            for key, (pipeline, target) in ENGINES.items():
                name = f"engine-{key}"
                futures[key] = pool.submit(build_once, tmp_path_factory, name, pipeline, target)
        return futures[wanted].result()

    return get
