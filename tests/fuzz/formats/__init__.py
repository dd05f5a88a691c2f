"""The formats by name."""

from __future__ import annotations

from typing import Any

from tests.fuzz.form import Format
from tests.fuzz.formats.adapters import Adapters
from tests.fuzz.formats.batch_lines import BatchLines
from tests.fuzz.formats.chat import Chat
from tests.fuzz.formats.config import Config
from tests.fuzz.formats.gguf import Gguf
from tests.fuzz.formats.layouts import Layouts, Signatures
from tests.fuzz.formats.manifest import (
    ArtifactTokenizer,
    ManifestBytes,
    ManifestDigest,
    ManifestJson,
    Report,
)
from tests.fuzz.formats.models import Onnx, Pickled, Sounds
from tests.fuzz.formats.recipes import Recipes
from tests.fuzz.formats.requests import Requests
from tests.fuzz.formats.safetensors import Safetensors
from tests.fuzz.formats.servers import Hub, Registry
from tests.fuzz.formats.texts import Texts
from tests.fuzz.formats.tokenizer_files import TokenizerFiles

FORMATS: dict[str, type[Format[Any]]] = {
    kind.name: kind
    for kind in (
        Safetensors,
        Config,
        TokenizerFiles,
        ManifestBytes,
        ManifestJson,
        ManifestDigest,
        Report,
        ArtifactTokenizer,
        Chat,
        Requests,
        Recipes,
        Texts,
        Gguf,
        Onnx,
        Pickled,
        Sounds,
        Adapters,
        BatchLines,
        Layouts,
        Signatures,
        Registry,
        Hub,
    )
}
