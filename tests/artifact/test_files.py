"""Paths by names of the manifest. Attacks on whole artifacts are in tests/cli/commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles, check_size
from optc.artifact.manifest import FileEntry
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine, write_toy

ENTRY = FileEntry("engines/target/weights.bin", 8, "00" * 32)
FILES = ArtifactFiles(Path("a"), [ENTRY])


def test_listed_files_have_paths() -> None:
    engine = FILES.of_engine(toy_engine())
    assert FILES.path(ENTRY.path, "a test") == Path("a", ENTRY.path)
    assert engine.path("weights.bin") == Path("a", ENTRY.path)
    assert engine.entry("weights.bin", "../target") is ENTRY


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("engine.so", "."),
        ("weights.bin", ".."),
        ("weights.bin", "/engines/target"),
        ("weights.bin", "../../../a/engines/target"),
        ("/etc/passwd", "."),
        ("", "."),
    ],
)
def test_others_have_none(name: str, beside: str) -> None:
    with pytest.raises(ArtifactError, match="which the manifest does not list") as caught:
        FILES.of_engine(toy_engine()).path(name, beside)
    assert caught.value.where == "a/manifest.json"
    assert caught.value.message.startswith("engine 'target' needs the file ")


def replace_by_link(path: Path) -> None:
    """As an archive may have it: what is there lies elsewhere, and a link leads to it."""
    path.rename(elsewhere := path.with_name("elsewhere"))
    path.symlink_to(elsewhere.name)


@pytest.mark.parametrize(
    ("path", "what"),
    [(ENTRY.path, "file"), ("engines/target", "folder"), ("engines", "folder")],
)
def test_no_link_leads_to_a_listed_file(tmp_path: Path, path: str, what: str) -> None:
    artifact = write_toy(tmp_path / "a")
    replace_by_link(artifact.path / path)
    with pytest.raises(ArtifactError, match=f"the {what} is a symbolic link") as caught:
        artifact.files.check(artifact.manifest)
    assert caught.value.where == str(artifact.path / path)
    assert caught.value.hint == "copy the artifact with what its links lead to (cp -rL)"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("folder", "is no regular file"),
        ("file/weights.bin", "is no folder"),
        ("absent/weights.bin", "the folder is missing"),
        ("absent", "the file is missing"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_what_is_no_file_of_an_artifact_is_named(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=problem) as caught:
        check_size(tmp_path, replace(ENTRY, path=path))
    assert caught.value.where == str(tmp_path / path.split("/")[0])


def test_every_file_that_the_manifest_uses_is_listed(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a")
    manifest, files = artifact.manifest, artifact.files
    assert manifest.tokenizer is not None
    files.check(replace(manifest, tokenizer=None))
    template = replace(manifest.tokenizer, chat_template="tokenizer/template.jinja")
    more = replace(manifest.tokenizer, files=(*manifest.tokenizer.files, "tokenizer/more.json"))
    for tokenizer, name in ((template, "template.jinja"), (more, "more.json")):
        with pytest.raises(ArtifactError, match=f"the tokenizer needs the file .*{name}"):
            files.check(replace(manifest, tokenizer=tokenizer))
    engine = replace(toy_engine(), files=("weights.bin", "more.so"))
    with pytest.raises(ArtifactError, match="engine 'target' needs the file 'engines/target/more"):
        files.check(replace(manifest, engines=(engine,)))


def test_errors_about_an_engine_name_it() -> None:
    error = FILES.of_engine(toy_engine()).error("is odd")
    assert str(error).startswith("a/manifest.json: engine 'target': is odd (copy the artifact")


def test_a_folder_in_an_engines_folder_holds_listed_files_only(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a")
    folder = artifact.path / "engines/target"
    (folder / "empty").mkdir()
    artifact.files.check(artifact.manifest)
    (folder / "more").symlink_to("/tmp")
    with pytest.raises(ArtifactError, match="does not list this file") as caught:
        artifact.files.check(artifact.manifest)
    assert caught.value.where == str(folder / "more")
    (folder / "more").unlink()
    (folder / "empty/x").write_text("")
    with pytest.raises(ArtifactError, match="does not list this file") as caught:
        artifact.files.check(artifact.manifest)
    assert caught.value.where == str(folder / "empty/x")


@pytest.mark.parametrize("difference", [-1, 1, 4096])
def test_a_file_has_just_the_bytes_of_its_entry(difference: int, tmp_path: Path) -> None:
    entry = replace(ENTRY, path="file", bytes=5000)
    (tmp_path / "file").write_bytes(bytes(5000))
    check_size(tmp_path, entry)
    (tmp_path / "file").write_bytes(bytes(5000 + difference))
    with pytest.raises(ArtifactError, match=f"the file has {5000 + difference} bytes where"):
        check_size(tmp_path, entry)
