from __future__ import annotations

import errno
from pathlib import Path

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.artifact.verify import unlisted_files
from optc.errors import ArtifactError, InputError, UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import parse_target
from tests.artifact.toy import forge, list_files, write_toy
from tests.support.stub import StubBackend

WEIGHTS_PATH = "engines/target/weights.bin"


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return write_toy(tmp_path / "a")


def flip_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_opens_what_was_written(artifact: Artifact) -> None:
    opened = Artifact.open(artifact.path)
    assert opened == artifact
    assert opened.digest == artifact.manifest.digest
    assert opened.report() == {"seconds": 1.5}
    assert opened.engine_folder(opened.engine()) == artifact.path / "engines/target"
    assert opened.tokenizer_file() == artifact.path / "tokenizer/tokenizer.json"
    assert opened.chat_template() == ""


@pytest.mark.parametrize("position", [0, 5000, 10239])
def test_a_flipped_byte_is_found_and_the_file_named(artifact: Artifact, position: int) -> None:
    flip_byte(artifact.path / WEIGHTS_PATH, position)
    with pytest.raises(ArtifactError, match="the file is corrupted") as caught:
        Artifact.open(artifact.path)
    assert caught.value.where == str(artifact.path / WEIGHTS_PATH)
    # What "size" promises, and no more.
    assert Artifact.open(artifact.path, verify="size") == artifact


@pytest.mark.parametrize("verify", ["full", "size"])
def test_truncated_and_missing_files_are_named(artifact: Artifact, verify: str) -> None:
    path = artifact.path / WEIGHTS_PATH
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="has 10239 bytes where the manifest says 10240"):
        Artifact.open(artifact.path, verify=verify)  # type: ignore[arg-type]
    path.unlink()
    with pytest.raises(ArtifactError, match="the file is missing") as caught:
        Artifact.open(artifact.path, verify=verify)  # type: ignore[arg-type]
    assert caught.value.where == str(path)


def test_a_flipped_byte_of_the_manifest_is_found(artifact: Artifact) -> None:
    path = artifact.path / "manifest.json"
    path.write_text(path.read_text().replace('"llama"', '"llamb"'))
    with pytest.raises(ArtifactError, match="digest does not match"):
        Artifact.open(artifact.path)
    path.write_bytes(b"\xff{")
    with pytest.raises(ArtifactError, match="is not JSON"):
        Artifact.open(artifact.path)


def test_what_is_no_artifact_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such artifact"):
        Artifact.open(tmp_path / "absent")
    with pytest.raises(ArtifactError, match=r"holds no manifest\.json") as caught:
        Artifact.open(tmp_path)
    assert caught.value.hint == "give the folder that optc compile wrote"
    (tmp_path / "f").write_text("")
    with pytest.raises(ArtifactError, match="is a file, not an artifact folder"):
        Artifact.open(tmp_path / "f")


class Choosy(StubBackend):
    """Refuses every engine."""

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        raise files.error(f"{files.path('weights.bin').name} is odd")


def test_each_backend_checks_its_engines_unless_it_is_not_installed(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "backend", Choosy)
    with pytest.raises(ArtifactError, match=r"weights\.bin is odd") as caught:
        Artifact.open(artifact.path, "size")
    assert caught.value.where == f"{artifact.path / 'manifest.json'}: engine 'target'"

    def unknown(name: str) -> StubBackend:
        raise InputError(f"unknown backend {name!r}")

    monkeypatch.setattr(registry, "backend", unknown)
    assert Artifact.open(artifact.path) == artifact


def test_a_chat_template_is_utf8(artifact: Artifact) -> None:
    path = artifact.path / "tokenizer/chat_template.jinja"
    forge(artifact.path, lambda m: m["tokenizer"].update(chat_template=f"tokenizer/{path.name}"))
    for contents, text in (("{{ 'ä' }}".encode(), "{{ 'ä' }}"), (b"\xff", None)):
        path.write_bytes(contents)
        list_files(artifact.path)
        opened = Artifact.open(artifact.path)
        if text is not None:
            assert opened.chat_template() == text
            continue
        with pytest.raises(ArtifactError, match="is not UTF-8: invalid start byte") as caught:
            opened.chat_template()
        assert caught.value.where == str(path)


def test_a_chat_template_that_cannot_be_read_any_more(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = artifact.path / "tokenizer/chat_template.jinja"
    forge(artifact.path, lambda m: m["tokenizer"].update(chat_template=f"tokenizer/{path.name}"))
    path.write_text("{{ 1 }}")
    list_files(artifact.path)
    opened = Artifact.open(artifact.path)

    def broken(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("optc.artifact.artifact.read_file", broken)
    with pytest.raises(ArtifactError, match=r"jinja: cannot be read: Input/output error"):
        opened.chat_template()


def test_without_a_tokenizer_there_is_no_template(artifact: Artifact) -> None:
    forge(artifact.path, lambda manifest: manifest.update(tokenizer=None))
    opened = Artifact.open(artifact.path)
    assert opened.tokenizer_file() is None
    assert opened.chat_template() == ""


def test_strangers_are_listed_but_not_the_report(artifact: Artifact) -> None:
    assert unlisted_files(artifact.path, artifact.manifest.files) == []
    (artifact.path / "engines/notes.txt").write_text("x")
    assert unlisted_files(artifact.path, artifact.manifest.files) == ["engines/notes.txt"]


def test_the_engine_for_this_machine_is_found(artifact: Artifact) -> None:
    v3 = Machine(frozenset(parse_target("x86-64-v3").features))
    choice = artifact.choose(machine=v3)
    assert (choice.entry.name, choice.rejected) == ("target", ())
    with pytest.raises(UnavailableError) as caught:
        artifact.choose(machine=Machine(frozenset()))
    assert caught.value.where == str(artifact.path)


def test_a_role_that_no_engine_has_is_an_input_error(artifact: Artifact) -> None:
    with pytest.raises(InputError, match="no engine of role 'draft'") as caught:
        artifact.choose("draft")
    assert caught.value.hint == "roles: target"
