from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.backends.tvm.engine_driver import (
    BF16,
    FUSED,
    FUSED_KV8,
    FUSED_KV16,
    INT4,
    INT8,
    SHAPE,
    Engine,
    build,
)

#: Every engine that the tests share: pipeline and target.
ENGINES = {
    "fp32": (FUSED, "native"),
    "bf16": (BF16, "native"),
    "int8": (INT8, "native"),
    "int8-v3": (INT8, "x86-64-v3"),
    "fp32-kv16": (FUSED_KV16, "native"),
    "fp32-kv8": (FUSED_KV8, "native"),
    "int4": (INT4, "x86-64-v4-vnni"),
}


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Engine]:
    """Engines by name, all built at once in the background (in processes of their own)."""
    folder = tmp_path_factory.mktemp("engines")
    pool = ThreadPoolExecutor(2)
    futures: dict[str, Future[Engine]] = {}

    def get(name: str) -> Engine:
        if not futures:
            for key, (pipeline, target) in ENGINES.items():
                futures[key] = pool.submit(build, folder / key, SHAPE, pipeline, target)
        return futures[name].result()

    return get
