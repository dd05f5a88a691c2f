"""What an engine was compiled for, in its own code, so that a load can tell another's manifest."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from optc.artifact.spec_digest import spec_digest
from optc.backends.tvm.engine_data import EngineData
from optc.backends.tvm.engine_files import ENGINE_FILE
from optc.backends.tvm.program import Tensor
from optc.errors import ArtifactError
from optc.executable.executable import EngineSpec, Int32

#: The kernel that writes it; engines compiled before have none.
FINGERPRINT = "engine_fingerprint"
#: It is int32 [WORDS].
WORDS = 8


def fingerprint(
    spec: EngineSpec, weights: Iterable[Tensor], *, given_logits: bool = True, pooled: bool = True
) -> tuple[int, ...]:
    """Of an engine with this spec, whose step takes these weights, logits and results as in
    `optc.backends.tvm.engine_data.EngineData`."""
    digest = spec_digest(spec, list(weights), given_logits, pooled)
    return tuple(np.frombuffer(digest, "<i4").tolist())


def check_fingerprint(ffi: ModuleType, library: Any, spec: EngineSpec, data: EngineData) -> None:
    """Check that the kernels in ``library`` are those of an engine with this spec and data.

    Raises:
        ArtifactError: They are another's; they would read and write beyond their memory.
    """
    found: Int32 = np.zeros(WORDS, np.int32)
    library.get_function(FINGERPRINT)(ffi.from_dlpack(found))
    expected = fingerprint(
        spec,
        [placed.tensor for placed in data.weights],
        given_logits=data.given_logits,
        pooled=data.pooled,
    )
    if tuple(found.tolist()) != expected:
        raise ArtifactError(
            "the manifest describes another engine: its limits, KV shape or weights are not those "
            "that the engine was compiled for",
            where=ENGINE_FILE,
            hint="copy the artifact again or compile the model again",
        )
