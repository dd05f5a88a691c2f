"""The part of the manifest that a build writes for its load (``EngineEntry.data``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.backends.onnxruntime.providers import CPU, CUDA, TENSORRT, device_of
from optc.system.foreign.typed_json import exactly, typed

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
#: Metadata of the model: digest of the spec that it was built with (`optc.artifact.spec_digest`).
SPEC_METADATA = "optc.spec"
#: Execution providers that engines are built for.
Provider = Annotated[str, exactly(CPU, CUDA, TENSORRT)]


class EngineData(Struct, frozen=True, forbid_unknown_fields=True):
    """Data that a load needs beside the spec.

    Attributes:
        provider: Execution provider that runs the engine.
        release: The first one of ONNX Runtime that has its operators.
        saturates: Whether pairs of its products of bytes may exceed 16 bits: on x86 CPUs without
            VNNI results are then other ones.
    """

    provider: Provider
    release: Annotated[str, Meta(pattern=r"\A[0-9]{1,4}([.][0-9]{1,4}){1,3}\Z")]
    saturates: bool = False


def read_data(data: Mapping[str, Any]) -> EngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, unknown or of another type.
    """
    return typed(data, EngineData, "onnxruntime engine: data")


def check_engine(engine: EngineEntry, files: EngineFiles) -> None:
    """Check an engine's data, and that the manifest lists what a load opens.

    Raises:
        ArtifactError: It does not, or the data are not as a build writes them.
    """
    provider = read_data(engine.data).provider
    if device_of(provider).kind != engine.target.kind:
        raise files.error(f"it is for a {engine.target.kind} target and runs on {provider}")
    for name in (MODEL_FILE, WEIGHTS_FILE):
        files.entry(name)
