from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

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

#: Every engine that the tests share: pipeline and target, of which there are two, as kernels that
#: one engine has made come from the cache for the next. What differs from others by its matmuls
#: alone, which have tests on every instruction set, is for the one whose matmuls LLVM compiles in a
#: third of the time.
ENGINES = {
    "fp32": (FUSED, "native"),
    "fp32-kv8": (FUSED_KV8, "native"),
    "int8-v3": (INT8, "x86-64-v3"),
    "bf16": (BF16, "native"),
    "fp32-kv16": (FUSED_KV16, "native"),
    "int8": (INT8, "native"),
    "fp32-kv4": (FUSED_KV4, "native"),
    "int4": (INT4, "x86-64-v3"),
    "int4-two-level": (INT4_TWO_LEVEL, "native"),
    "int4-a16": (INT4_A16, "native"),
    "int6-mixed": (INT6_MIXED, "x86-64-v3"),
}


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Engine]:
    """Engines by name, each built when it is first wanted: some belong to long tests alone."""

    @cache
    def get(wanted: str) -> Engine:
        return build_once(tmp_path_factory, f"engine-{wanted}", *ENGINES[wanted])

    return get
