"""What an engine's build writes into the manifest for its load (``EngineEntry.data``), checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import Fields
from optc.backends.tensorrt.header import read_header
from optc.backends.tensorrt.limits import Limits
from optc.backends.tensorrt.provider import PACKAGES

#: The engine's file in its folder.
ENGINE_FILE = "engine.trt"
RTX = "tensorrt_rtx"
_VERSION = re.compile("[0-9]{1,5}([.][0-9]{1,5}){2,3}([.]?[a-z0-9]{1,16})?")


@dataclass(frozen=True)
class EngineData:
    """What a load needs beside the spec.

    Attributes:
        package: Python package that built the engine and runs it.
        version: Of that package.
        slot_length: Tokens of a slot.
        profiles: Limits of each profile, in the engine's order.
        inputs: Names of the engine's inputs.
        aliases: By output, the input whose memory it shares.
    """

    package: str
    version: str
    slot_length: int
    profiles: tuple[Limits, ...]
    inputs: tuple[str, ...]
    aliases: dict[str, str]


def read_data(data: Mapping[str, Any]) -> EngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, of another type or out of range.
    """
    f = Fields(data, "tensorrt engine: data")
    version = f.get("version", str)
    if not _VERSION.fullmatch(version):
        raise f.error(f"the key 'version' is {version[:80]!r}, which is no version")
    profiles = tuple(
        Limits(p.get("name", str), p.count("batch", 1), p.count("rows", 1), p.count("logits", 1))
        for p in f.children("profiles")
    )
    inputs, aliases = f.each("inputs", str), f.texts("aliases")
    if not profiles:
        raise f.error("it has no profiles")
    if not set(aliases.values()) <= set(inputs):
        raise f.error("the key 'aliases' names what is no input")
    return EngineData(
        f.choice("package", PACKAGES), version, f.count("slot_length", 1), profiles, inputs, aliases
    )


def check_files(data: EngineData, files: EngineFiles) -> None:
    """Check that the manifest lists the engine's file and, where its header is understood, that
    the file is an engine.

    Raises:
        ArtifactError: It does not, or it is not.
    """
    path = files.path(ENGINE_FILE)
    if data.package == RTX:
        read_header(path)
