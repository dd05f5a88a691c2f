"""The purpose of an engine, stated in its own code, so that a load can tell another's manifest."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from optc.artifact.spec_digest import interface_digest, spec_digest
from optc.backends.tvm.engine_data import EngineData
from optc.backends.tvm.engine_files import code_files
from optc.backends.tvm.packed_data import Packed, PackedEngineData
from optc.backends.tvm.program import Tensor
from optc.errors import ArtifactError
from optc.runtime.executable.executable import Int32, StepInterface
from optc.runtime.executable.tensors_interface import TensorsInterface

#: The kernel that writes it.
FINGERPRINT = "engine_fingerprint"
#: It is int32 [WORDS].
WORDS = 8


#: How steps take their memory. Another way, in which the arguments of ``step`` mean something else,
#: must be another value.
_CALLING = (True, True)


def fingerprint(spec: StepInterface, weights: Iterable[Tensor]) -> tuple[int, ...]:
    """Of an engine with this spec, whose step takes these weights."""
    digest = spec_digest(spec, list(weights), *_CALLING)
    return tuple(np.frombuffer(digest, "<i4").tolist())


def tensors_fingerprint(
    interface: TensorsInterface, packed: Packed, weights: Iterable[Tensor]
) -> tuple[int, ...]:
    """Of an engine over packed rows."""
    digest = interface_digest(interface, packed, list(weights))
    return tuple(np.frombuffer(digest, "<i4").tolist())


def check_fingerprint(ffi: ModuleType, library: Any, spec: StepInterface, data: EngineData) -> None:
    """Check that the kernels in ``library`` are those of an engine with this spec and data.

    Raises:
        ArtifactError: They are another's; they would read and write beyond their memory.
    """
    _check(ffi, library, fingerprint(spec, [placed.tensor for placed in data.weights]))


def check_tensors_fingerprint(
    ffi: ModuleType, library: Any, interface: TensorsInterface, data: PackedEngineData
) -> None:
    """The same of an engine over packed rows; raises as `check_fingerprint`."""
    tensors = [placed.tensor for placed in data.weights]
    _check(ffi, library, tensors_fingerprint(interface, data.packed, tensors))


def _check(ffi: ModuleType, library: Any, expected: tuple[int, ...]) -> None:
    found: Int32 = np.zeros(WORDS, np.int32)
    library.get_function(FINGERPRINT)(ffi.from_dlpack(found))
    if tuple(found.tolist()) != expected:
        raise ArtifactError(
            "the manifest describes another engine: its limits, KV shape or weights are not those "
            "that the engine was compiled for",
            where=code_files().engine,
            hint="copy the artifact again or compile the model again",
        )
