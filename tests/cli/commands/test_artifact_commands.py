"""inspect and verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifact.toy import list_files, write_toy
from tests.cli.conftest import Optc
from tests.runtime.support.artifacts import write_artifact


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "a").path


def test_verify(optc: Optc, artifact: Path) -> None:
    value = optc("verify", artifact, "--json").json
    assert value["ok"] is True
    assert (value["files"], value["bytes"]) == (5, 10299)
    assert value["digest"] in optc("verify", artifact).out
    assert value["warnings"] == []


def test_verify_refuses_a_tokenizer_that_no_load_would_take(optc: Optc, artifact: Path) -> None:
    """Although its bytes are those that the manifest lists."""
    path = artifact / "tokenizer/tokenizer.json"
    path.write_text("{}")
    list_files(artifact)
    outcome = optc("verify", artifact)
    assert (outcome.code, str(path) in outcome.err) == (5, True), outcome.err


def test_verify_says_how_much_it_checked(optc: Optc, artifact: Path) -> None:
    first, second = optc("verify", artifact).out.splitlines()
    assert first == f"{artifact}: 5 files, 10.1 KiB, all as written"
    assert second.startswith("digest ")


def test_verify_warns_of_files_that_are_not_in_the_manifest(optc: Optc, artifact: Path) -> None:
    (artifact / "notes").write_text("x")
    assert optc("verify", artifact, "--json").json["warnings"] == ["notes is not in the manifest"]
    assert "warning: notes is not in the manifest" in optc("verify", artifact).err


@pytest.mark.parametrize("command", [["verify"], ["run", "--prompt", "x"]])
def test_verify_and_load_name_a_corrupted_file(
    optc: Optc, artifact: Path, command: list[str]
) -> None:
    path = artifact / "engines/target/weights.bin"
    data = bytearray(path.read_bytes())
    data[777] ^= 0x10
    path.write_bytes(data)
    outcome = optc(*command, artifact)
    assert outcome.code == 5
    assert f"error: {path}: the file is corrupted" in outcome.err
    assert optc(*command, artifact, "--json").json["error"]["kind"] == "artifact"


def test_inspect(optc: Optc, artifact: Path) -> None:
    value = optc("inspect", artifact, "--json").json
    assert value["manifest"]["name"] == "toy"
    assert value["digest"] == value["manifest"]["digest"]
    assert value["report"]["seconds"] == 1.5
    text = optc("inspect", artifact).out
    assert "toy (llama)" in text
    assert "x86-64-v3" in text
    assert " gates      passed: 1 of 1 on target\n" in text


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_artifact(optc: Optc, tmp_path: Path, command: str) -> None:
    outcome = optc(command, tmp_path / "absent")
    assert outcome.code == 2
    assert "no such artifact" in outcome.err


def test_inspect_states_the_model_s_own_settings(optc: Optc, tmp_path: Path) -> None:
    generation = {"top_p": 0.9, "repetition_penalty": 1.5}
    path = write_artifact(tmp_path / "a", generation=generation).path
    assert optc("inspect", path, "--json").json["manifest"]["generation"] == generation
    assert " defaults   repetition_penalty=1.5, top_p=0.9\n" in optc("inspect", path).out
