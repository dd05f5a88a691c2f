"""optc sign, and optc verify --key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.artifact.toy import write_toy
from tests.artifact.trust.keys import write_keys
from tests.cli.conftest import Optc


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "a").path


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path)


def test_sign_and_verify(optc: Optc, artifact: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    value = optc("sign", artifact, "--key", private, "--json").json
    signature = value["signature"]
    assert (signature["path"], signature["files"]) == (str(artifact / "model.sig"), 8)
    found = optc("verify", artifact, "--key", public, "--json").json
    assert found["signature"] == signature
    assert found["digest"] == value["digest"]
    assert found["warnings"] == []
    again = optc("sign", artifact, "--key", private)
    assert again.out.startswith(
        f"{artifact / 'model.sig'}: 8 files signed by the key {signature['key']}"
    )
    assert (
        f"8 files signed by the key {signature['key']}"
        in optc("verify", artifact, "--key", public).out
    )


def test_a_changed_byte(optc: Optc, artifact: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    optc("sign", artifact, "--key", private)
    path = artifact / "provenance.json"
    path.write_bytes(path.read_bytes().replace(b"fp32", b"fp16"))
    assert optc("verify", artifact).code == 0
    found = optc("verify", artifact, "--key", public)
    assert found.code == 5
    assert f"error: {path}: is not the file that was signed" in found.err
    error = optc("verify", artifact, "--key", public, "--json").json["error"]
    assert error["kind"] == "signature"


def test_an_artifact_that_nobody_signed(
    optc: Optc, artifact: Path, keys: tuple[Path, Path]
) -> None:
    found = optc("verify", artifact, "--key", keys[1])
    assert (found.code, "is not signed (optc sign --key)" in found.err) == (5, True)


def test_a_damaged_artifact_is_not_signed(
    optc: Optc, artifact: Path, keys: tuple[Path, Path]
) -> None:
    path = artifact / "engines/target/weights.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    found = optc("sign", artifact, "--key", keys[0])
    assert (found.code, "the file is corrupted" in found.err) == (5, True)
    assert not (artifact / "model.sig").exists()


def test_a_password_comes_from_a_file(
    optc: Optc, artifact: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    private, public = keys
    key = load_pem_private_key(private.read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    private.write_bytes(key.private_bytes(*form))
    locked = optc("sign", artifact, "--key", private)
    assert (locked.code, "--password-file names what opens it" in locked.err) == (2, True)
    (tmp_path / "password").write_text("secret\n")
    opened = ("--key", private, "--password-file", tmp_path / "password")
    assert optc("sign", artifact, *opened).code == 0
    assert optc("verify", artifact, "--key", public).code == 0
    absent = optc("sign", artifact, "--key", private, "--password-file", tmp_path / "absent")
    assert (absent.code, "--password-file: cannot read" in absent.err) == (2, True)


def test_keys_that_are_none(optc: Optc, artifact: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    assert "is no private key in PEM form" in optc("sign", artifact, "--key", public).err
    assert "is no public key in PEM form" in optc("verify", artifact, "--key", private).err
    assert optc("sign", artifact).code == 2


@pytest.mark.parametrize("command", ["sign", "verify"])
def test_without_the_extra(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    found = optc(command, artifact, "--key", artifact / "manifest.json")
    assert found.code == 3
    assert "signatures: the package 'cryptography' is not installed (pip install 'optc" in found.err
