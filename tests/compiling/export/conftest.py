from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import transformers

from optc import registry
from optc.artifact.artifact import Artifact
from optc.importer.import_model import import_model
from tests.compiling.export.engines import (
    PASSES,
    VOCABULARY,
    GivingBackend,
    weights_of,
    write_giving,
)
from tests.importer.decoders import build, config_of, save
from tests.support.pipelines import pipeline_of

SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96}
#: Models by the options of quantize-weights: biases with int8 per channel, and a table that the
#: embedding shares with the head, with int4 in groups.
KINDS = {
    "qwen2": ("Qwen2", {}, "{bits=8}"),
    "qwen3": ("Qwen3", {"head_dim": 128, "tie_word_embeddings": True}, "{bits=4,group_size=32}"),
}


class Made(NamedTuple):
    """A model of transformers, and the backend and artifact of its quantized form."""

    model: transformers.PreTrainedModel
    backend: GivingBackend
    artifact: Artifact


#: By kind; other folders of tests have the fixture too, and an import takes seconds.
_MADE: dict[str, Made] = {}


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    if not _MADE:
        _MADE.update({kind: _made(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS})
    return _MADE


@pytest.fixture(params=KINDS)
def made(
    kinds: dict[str, Made], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Made:
    """One of them; its backend is the only one there is."""
    found = kinds[request.param]
    monkeypatch.setattr(registry, "backend", {"toy": found.backend}.__getitem__)
    return found


def _made(kind: str, folder: Path) -> Made:
    name, options, scheme = KINDS[kind]
    model = build(config_of(name, **SIZES, **options))
    imported = import_model(save(model, folder / "source"))
    pipeline_of(PASSES + scheme).run(imported.model)
    artifact = write_giving(folder / "artifact", imported.config)
    return Made(model, GivingBackend(weights_of(imported.model)), artifact)
