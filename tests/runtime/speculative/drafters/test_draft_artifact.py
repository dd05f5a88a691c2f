from __future__ import annotations

from pathlib import Path

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import ArtifactError, InputError
from optc.runtime.speculative.drafters.draft_artifact import check_same_tokenizer, find_draft
from optc.system.hardware.target import Target
from tests.runtime.support.artifacts import ToyBackend, write_artifact


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)


TWO = (Target("any", "cpu"), Target("x86-64-v3", "cpu"))


def test_the_targets_own_draft_is_the_one_beside_its_engine(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a", roles=("target", "draft"), targets=TWO)
    for engine in artifact.manifest.engines:
        if engine.role == "target":
            found, entry = find_draft(artifact, engine, "draft", None, "size")
            assert found is artifact
            assert (entry.role, entry.target) == ("draft", engine.target)


def test_another_artifact_drafts_by_its_own_target(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a", roles=("target", "draft"))
    write_artifact(tmp_path / "b", roles=("target", "draft"))
    beside = artifact.manifest.engines[0]
    found, entry = find_draft(artifact, beside, "draft", tmp_path / "b", "size")
    assert found.path == tmp_path / "b"
    assert entry.role == "target"


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (
            "draft",
            "has no draft model "
            "(compile it with --draft MODEL, or give the artifact of a draft with draft=)",
        ),
        ("self", "has no draft of its own layers (compile it with --self-draft LAYERS)"),
        (
            "eagle",
            "has no layer that drafts by its hidden states (compile it with --eagle FOLDER)",
        ),
    ],
)
def test_an_artifact_without_a_draft_says_how_to_get_one(
    tmp_path: Path, role: str, message: str
) -> None:
    artifact = write_artifact(tmp_path / "a")
    with pytest.raises(InputError) as caught:
        find_draft(artifact, artifact.manifest.engines[0], role, None, "size")
    assert str(caught.value) == f"{tmp_path / 'a'}: {message}"


def test_a_damaged_draft_is_refused_if_all_of_it_is_checked(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a")
    write_artifact(tmp_path / "b")
    (tmp_path / "b/engines/target/engine.bin").write_bytes(b"toi")
    beside = artifact.manifest.engines[0]
    find_draft(artifact, beside, "draft", tmp_path / "b", "size")
    with pytest.raises(ArtifactError, match=r"engine\.bin"):
        find_draft(artifact, beside, "draft", tmp_path / "b", "full")


def test_the_tokenizer_of_another_artifact_must_be_the_same(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a")
    write_artifact(tmp_path / "b", special="<begin>")
    with pytest.raises(InputError, match="tokenizer differs") as caught:
        find_draft(artifact, artifact.manifest.engines[0], "draft", tmp_path / "b", "size")
    assert caught.value.where == str(tmp_path / "b")


def tokenizer_of(folder: Path, **options: str) -> Path:
    file = write_artifact(folder, **options).tokenizer_file()  # type: ignore[arg-type]
    assert file is not None
    return file


def test_tokenizers_are_compared_where_there_are_two(tmp_path: Path) -> None:
    check_same_tokenizer(None, None, "draft")
    same, also = tokenizer_of(tmp_path / "a"), tokenizer_of(tmp_path / "b")
    check_same_tokenizer(same, also, "draft")
    hint = "(a draft must be trained with the target's tokenizer)"
    other = tokenizer_of(tmp_path / "c", special="<begin>")
    for target, draft, problem in (
        (None, same, "the target has no tokenizer, the other model has one"),
        (same, None, "the draft has no tokenizer, the other model has one"),
        (same, other, "the draft's tokenizer differs from the target's in its 'model'"),
    ):
        with pytest.raises(InputError) as caught:
            check_same_tokenizer(target, draft, "DIR")
        assert str(caught.value) == f"DIR: {problem} {hint}"


def test_models_without_tokenizers_are_trusted(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a", tokenizer=False)
    other = write_artifact(tmp_path / "b", tokenizer=False)
    found, _ = find_draft(artifact, artifact.manifest.engines[0], "draft", other.path, "size")
    assert isinstance(found, Artifact)
