"""``optc compile --draft``: a second engine in the artifact, and which drafts are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from optc.artifact.artifact import Artifact
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from tests.cli.conftest import Optc
from tests.runtime.support.texts import byte_level
from tests.support.stub import StubBackend, write_tiny_model

Change = Callable[[ImportedModel, Path], ImportedModel]
ImportAs = Callable[[Change], None]


@pytest.fixture
def draft_folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny-draft")


@pytest.fixture
def import_as(imported_tiny: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> ImportAs:
    """Imports are the tiny model, changed by what is given: copy and source to what is imported."""

    def use(change: Change) -> None:
        def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
            copy = dataclasses.replace(imported_tiny, model=imported_tiny.model.clone())
            return change(copy, Path(source))

        monkeypatch.setattr(importer, "import_model", import_model)

    return use


def arguments(model: Path, draft: Path, output: Path) -> tuple[Any, ...]:
    return ("compile", model, "--draft", draft, "-o", output, "--recipe", "fp32", "--no-gates")


def test_the_artifact_holds_both_engines_and_runs(
    optc: Optc,
    stub: StubBackend,
    import_as: ImportAs,
    tiny_model: Path,
    draft_folder: Path,
    tmp_path: Path,
) -> None:
    import_as(lambda copy, source: dataclasses.replace(copy, name=source.name))
    output = tmp_path / "out/a"
    assert optc(*arguments(tiny_model, draft_folder, output)).code == 0
    artifact = Artifact.open(output)
    target, draft = artifact.manifest.engines
    assert (target.role, draft.role) == ("target", "draft")
    assert (draft.folder, draft.files) == ("engines/draft", target.files)
    assert target.source is None
    assert draft.source is not None
    assert draft.source.name == "tiny-draft"
    assert draft.spec.max_context == target.spec.max_context
    assert Artifact.open(output).digest == artifact.digest
    assert artifact.manifest.to_json()["engines"][0]["source"] is None
    assert [entry["build"] for entry in artifact.report()["engines"]] == [{"made": "up"}] * 2
    assert not (output / "draft-tokenizer").exists()
    call = ("run", output, "--prompt", "abc", "--max-tokens", "20", "--ignore-eos", "--json")
    plain = optc(*call).json
    drafted = optc(*call, "--speculate", "draft", "--num-speculative-tokens", "3").json
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["drafted_tokens"] == drafted["accepted_tokens"] > 0, "the same toy drafts"
    assert "draft" in optc("inspect", output).out


def test_another_tokenizer_is_refused_and_nothing_is_left(
    optc: Optc,
    stub: StubBackend,
    import_as: ImportAs,
    tiny_model: Path,
    draft_folder: Path,
    tmp_path: Path,
) -> None:
    text = byte_level(bos=True).to_str().replace('"<s>"', '"<begin>"')
    (draft_folder / "tokenizer.json").write_text(text)

    import_as(lambda copy, source: dataclasses.replace(copy, folder=source))
    outcome = optc(*arguments(tiny_model, draft_folder, tmp_path / "out/a"))
    assert outcome.code == 2
    assert "the draft's tokenizer differs from the target's in its" in outcome.err
    assert "a draft must be trained with the target's tokenizer" in outcome.err
    assert not stub.built, "before the long stages"
    assert not (tmp_path / "out").exists()


def test_another_vocabulary_is_refused_before_the_build(
    optc: Optc,
    stub: StubBackend,
    import_as: ImportAs,
    tiny_model: Path,
    draft_folder: Path,
    tmp_path: Path,
) -> None:
    def with_fewer_tokens(copy: ImportedModel, source: Path) -> ImportedModel:
        if source == draft_folder:
            copy.model.graph.outputs[0].shape = ir.Shape(["B", "S", 300])
        return copy

    import_as(with_fewer_tokens)
    outcome = optc(*arguments(tiny_model, draft_folder, tmp_path / "out/a"))
    assert outcome.code == 2
    assert "--draft: the draft model knows 300 tokens, the target" in outcome.err
    assert not stub.built
    assert not (tmp_path / "out").exists()


def test_a_missing_draft_is_found_before_any_work(
    optc: Optc, stub: StubBackend, tiny_model: Path, tmp_path: Path
) -> None:
    outcome = optc(*arguments(tiny_model, tmp_path / "none", tmp_path / "out/a"))
    assert outcome.code == 2
    assert f"--draft: no model (config.json) in {tmp_path / 'none'}" in outcome.err
    assert not stub.built


def test_too_many_layers_of_a_self_draft_are_found_before_the_build(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    options = ("--recipe", "fp32", "--no-gates", "--self-draft", "9")
    outcome = optc("compile", tiny_model, "-o", tmp_path / "out/a", *options)
    assert outcome.code == 2
    assert "--self-draft: 9 of 1 layers (a model of one layer has no first layers)" in outcome.err
    assert not stub.built
    assert not (tmp_path / "out").exists()


def test_layers_of_a_self_draft_are_a_number_or_auto(
    optc: Optc, stub: StubBackend, tiny_model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out/a"
    outcome = optc("compile", tiny_model, "-o", output, "--self-draft", "some")
    assert outcome.code == 2
    assert "'--self-draft': 'some' is neither a number of layers nor auto" in outcome.err
    assert not stub.built
    assert not output.parent.exists()
