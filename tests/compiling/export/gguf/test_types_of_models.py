"""Types of models whose GGUF files the importer reads back as the same models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from optc import registry
from optc.compiling.export.export import export_artifact
from optc.compiling.export.gguf.settings import architecture_of
from optc.compiling.export.gguf.tokenizer import _split
from optc.errors import UnsupportedError
from optc.importer.import_model import import_model
from tests.compiling.export.engines import (
    PASSES,
    VOCABULARY,
    GivingBackend,
    weights_of,
    write_giving,
)
from tests.compiling.export.readers import imported_class
from tests.importer.decoders import build, config_of, error, reference, save, tokens
from tests.support.pipelines import pipeline_of

FUSED = PASSES.removesuffix(",quantize-weights")
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {"unk_token_id": 0, "tie_word_embeddings": True},  # as of SmolLM2's file
    "Gemma3Text": {"head_dim": 32, "sliding_window": 8},
    "Gemma2": {"head_dim": 32, "sliding_window": 8},
    "Phi3": {},
    "Nemotron": {"head_dim": 16},
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_importer_reads_the_same_model(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64}
    model = build(config_of(kind, **sizes, **MODELS[kind]))
    imported = import_model(save(model, tmp_path / "source"))
    pipeline_of(FUSED).run(imported.model)
    backend = GivingBackend(weights_of(imported.model))
    monkeypatch.setattr(registry, "backend", {"toy": backend}.__getitem__)
    artifact = write_giving(tmp_path / "artifact", imported.config, FUSED)
    export_artifact(artifact, "gguf", tmp_path / "m.gguf")
    found = imported_class(tmp_path / "m.gguf")
    assert error(reference(found, tokens()), reference(model, tokens())) < 1e-6
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    unknown = fields.get("tokenizer.ggml.unknown_token_id")
    assert (unknown is not None) == ("unk_token_id" in MODELS[kind])


def test_types_that_transformers_does_not_read() -> None:
    assert architecture_of(config_of("Gemma3Text")) == "gemma3"
    with pytest.raises(UnsupportedError, match=r"no settings of GGUF for models of type olmo2"):
        architecture_of(config_of("Olmo2"))


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([BYTES], "gpt-2"),
        ([DIGITS, BYTES], "smollm"),
        ([{**DIGITS, "individual_digits": False}, BYTES], None),
        ([DIGITS, DIGITS, BYTES], None),
        ([{"type": "Punctuation"}, BYTES], None),
    ],
)
def test_names_of_splits(steps: list[dict[str, Any]], name: str | None) -> None:
    read = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    assert _split(json.loads(json.dumps(read))) == name
