"""What may be the reference of an artifact."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest
from msgspec.structs import replace

from optc.artifact.manifest import EngineEntry, Source
from optc.compiling.judging import reference_model
from optc.compiling.judging.reference_model import (
    check_source,
    check_source_folder,
    import_reference,
    other_source,
)
from optc.errors import InputError, UnsupportedError
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.importer.source_digest import digest_source
from optc.system.progress import no_progress
from tests.artifact.toy import toy_engine, toy_manifest
from tests.support.models import Dense, dense_model


def imported(folder: Path, model: ir.Model, digest: str = "00" * 32) -> ImportedModel:
    return ImportedModel(model, {}, "llama", folder.name, folder, digest, [], [], 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder as far as its digest and config go."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    write_config(path, vocab_size=16)
    return path


def write_config(path: Path, **more: Any) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **more}
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "config", [{"vocab_size": 15}, {"vocab_size": 16, "text_config": {"vocab_size": 15}}]
)
def test_another_vocabulary_is_seen_in_the_config(
    folder: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "import_model", None)  # would fail if it were called
    write_config(folder, **config)
    with pytest.raises(InputError, match="knows 15 tokens, the engine target 16"):
        import_reference(folder, toy_engine(), no_progress)


@pytest.mark.parametrize("vocab", [15, 16])
def test_the_importer_has_the_last_word(
    folder: Path, vocab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(folder)  # states nothing
    model = imported(folder, dense_model(Dense(vocab=vocab)))
    monkeypatch.setattr(importer, "import_model", lambda path, allow_remote_code: model)
    ran: list[ir.Model] = []
    pipeline = SimpleNamespace(run=ran.append)
    monkeypatch.setattr(reference_model, "dense_pipeline", lambda *_: pipeline)
    if vocab == 16:
        assert import_reference(folder, toy_engine(), no_progress) is model
        assert ran == [model.model]
    else:
        with pytest.raises(InputError, match="knows 15 tokens, the engine target 16"):
            import_reference(folder, toy_engine(), no_progress)


@pytest.mark.parametrize("allowed", [False, True])
def test_code_of_the_folder_runs_only_if_it_may(
    folder: Path, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(folder, vocab_size=16, auto_map={"AutoModelForCausalLM": "own.Model"})
    model, asked = imported(folder, dense_model(Dense(vocab=16))), []

    def import_model(path: Path, allow_remote_code: bool) -> importer.ImportedModel:
        asked.append(allow_remote_code)
        return model

    monkeypatch.setattr(importer, "import_model", import_model)
    run = SimpleNamespace(run=lambda model: None)
    monkeypatch.setattr(reference_model, "dense_pipeline", lambda *_: run)
    if allowed:
        import_reference(folder, toy_engine(), no_progress, allow_remote_code=True)
    else:
        with pytest.raises(UnsupportedError, match="auto_map names Python code"):
            import_reference(folder, toy_engine(), no_progress)
    assert asked == [True] * allowed


def test_the_digest_is_of_config_and_weights(folder: Path) -> None:
    def line(name: str) -> bytes:
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        return f"{found}  {name}\n".encode()

    whole = hashlib.sha256(line("config.json") + line("model.safetensors"))
    assert digest_source(folder) == whole.hexdigest()
    (folder / "tokenizer.json").write_text("{}")
    assert digest_source(folder) == whole.hexdigest()


def test_the_source_is_checked_without_an_import(folder: Path) -> None:
    source = Source("toy", digest_source(folder), "llama", {})
    manifest = replace(toy_manifest(()), source=source)
    check_source_folder(folder, manifest)
    (folder / "model.safetensors").write_bytes(b"weight2")
    with pytest.raises(InputError, match="is not the model that toy was compiled from") as caught:
        check_source_folder(folder, manifest)
    assert f"{digest_source(folder)[:12]}…, not {source.digest[:12]}…" in caught.value.message
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"weights without config\.json"):
        check_source_folder(folder, manifest)


def test_a_matching_digest_is_accepted() -> None:
    check_source("ab" * 32, toy_manifest(()), Path("m"))
    with pytest.raises(InputError, match="m: is not the model that toy was compiled from"):
        check_source("cd" * 32, toy_manifest(()), Path("m"))


@pytest.mark.parametrize("own", [False, True])
def test_an_engine_is_compared_with_its_own_source(own: bool) -> None:
    """A draft engine was compiled from another model than the artifact's target."""
    draft = Source("small", "cd" * 32, "llama", {})
    engine: EngineEntry = replace(toy_engine(), source=draft if own else None)
    target = imported(Path("toy"), dense_model(Dense()), "ab" * 32)
    small = imported(Path("small"), dense_model(Dense()), "cd" * 32)
    right, wrong = (small, target) if own else (target, small)
    assert other_source(right, engine, toy_manifest(())) is None
    text = other_source(wrong, engine, toy_manifest(()))
    assert text is not None
    for part in (wrong.name, right.name, wrong.source_digest[:12], right.source_digest[:12]):
        assert part in text
