from __future__ import annotations

from collections.abc import Callable
from functools import cache

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
#: Every engine that the tests share: pipeline and target. Kernels that one has made come from the
#: cache for the next.
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
    """Engines by name, each built when it is first wanted: some belong to long tests alone."""

    @cache
    def get(wanted: str) -> Engine:
        return build_once(tmp_path_factory, f"engine-{wanted}", *ENGINES[wanted])

    return get
