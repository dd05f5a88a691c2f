"""The part of the manifest that a build writes for its load (``EngineEntry.data``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from optc.artifact.files import EngineFiles
from optc.backends.tensorrt.header import read_header
from optc.backends.tensorrt.limits import Limits
from optc.backends.tensorrt.provider import PACKAGES, RTX
from optc.system.foreign.typed_json import Positive, exactly, typed

#: The engine's file in its folder.
ENGINE_FILE = "engine.trt"
_VERSION = r"\A[0-9]{1,5}([.][0-9]{1,5}){2,3}([.]?[a-z0-9]{1,16})?\Z"


class EngineData(Struct, frozen=True, forbid_unknown_fields=True):
    """Data that a load needs beside the spec.

    Attributes:
        package: Python package that built the engine and runs it.
        version: Of that package.
        slot_length: Tokens of a slot.
        profiles: Limits of each profile, in the engine's order; at least one.
        inputs: Names of the engine's inputs.
        aliases: By output, the input whose memory it shares.
        dtype: Of values between operators; for a reader.
        layers: Which layers the builder chose; for a reader (`optc.backends.tensorrt.report`).
    """

    package: Annotated[str, exactly(*PACKAGES)]
    version: Annotated[str, Meta(pattern=_VERSION)]
    slot_length: Positive
    profiles: Annotated[tuple[Limits, ...], Meta(min_length=1)]
    inputs: tuple[str, ...]
    aliases: dict[str, str]
    dtype: str = ""
    layers: Any = None

    def __post_init__(self) -> None:
        if not set(self.aliases.values()) <= set(self.inputs):
            raise ValueError("'aliases' names what is no input")


def read_data(data: Mapping[str, Any]) -> EngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, unknown, of another type or out of range.
    """
    return typed(data, EngineData, "tensorrt engine: data")


def check_files(data: EngineData, files: EngineFiles) -> None:
    """Check that the manifest lists the engine's file and, where its header is understood, that
    the file is an engine.

    Raises:
        ArtifactError: It does not, or it is not.
    """
    path = files.path(ENGINE_FILE)
    if data.package == RTX:
        read_header(path)
