"""What an engine's build writes into the manifest for its load (``EngineEntry.data``), checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact import EngineEntry
from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import Fields
from optc.backends.onnxruntime.providers import CPU, CUDA, TENSORRT, device_of

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
#: Metadata of the model: digest of the spec that it was built with (`optc.artifact.spec_digest`).
SPEC_METADATA = "optc.spec"
_RELEASE = re.compile("[0-9]{1,4}([.][0-9]{1,4}){1,3}")


@dataclass(frozen=True)
class EngineData:
    """What a load needs beside the spec.

    Attributes:
        provider: Execution provider that runs the engine.
        release: The first one of ONNX Runtime that has its operators.
    """

    provider: str
    release: str


def read_data(data: Mapping[str, Any]) -> EngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, of another type or unknown.
    """
    f = Fields(data, "onnxruntime engine: data")
    release = f.get("release", str)
    if not _RELEASE.fullmatch(release):
        raise f.error(f"the key 'release' is {release[:80]!r}, which is no release")
    return EngineData(f.choice("provider", (CPU, CUDA, TENSORRT)), release)


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
