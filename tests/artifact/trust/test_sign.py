"""Signatures of artifacts, by optc's own check and by model_signing's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.trust.bundle import Bundle, pre_authentication
from optc.artifact.trust.keys import PrivateKey, PublicKey
from optc.artifact.trust.sign import Signed, _compare, check_signature, sign
from optc.artifact.trust.texts import trust_texts
from optc.artifact.verify import check_files, unlisted_files
from optc.errors import ArtifactError, InputError, SignatureError
from tests.artifact.toy import write_toy
from tests.artifact.trust.keys import write_keys


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path)


@pytest.fixture
def artifact(tmp_path: Path, keys: tuple[Path, Path]) -> Artifact:
    made = write_toy(tmp_path / "a")
    sign(made, PrivateKey(keys[0]))
    return made


def check(artifact: Artifact, public: Path) -> None:
    """What ``optc verify --key`` does."""
    opened = Artifact.open(artifact.path, "size")
    check_signature(opened, PublicKey.read(public))
    check_files(opened.path, opened.manifest.files)


def test_a_signed_artifact(artifact: Artifact, keys: tuple[Path, Path]) -> None:
    opened = Artifact.open(artifact.path)
    assert opened.digest == artifact.digest
    assert unlisted_files(artifact.path, artifact.manifest.files) == []
    found = check_signature(opened, PublicKey.read(keys[1]))
    assert (found.path, found.files) == (artifact.path / "model.sig", 5 + 3)
    assert [p.name for p in artifact.path.iterdir() if p.name.startswith(".")] == []


def test_what_a_signature_is_said_to_be(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    made, key = write_toy(tmp_path / "a"), PrivateKey(keys[0])
    assert sign(made, key) == Signed(made.path / "model.sig", key.public.hint, 5 + 3)
    assert (made.path / "model.sig").is_file()


def test_what_is_signed_is_written_anew(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """With the figures that the report has now, and whatever stood there before."""
    made = write_toy(tmp_path / "a")
    (made.path / "provenance.json").write_text("{}")
    (made.path / "sbom.cdx.json").unlink()
    (made.path / "report.json").write_text('{"seconds": 2.5}')
    sign(made, PrivateKey(keys[0]))
    texts = trust_texts(made.manifest, {"seconds": 2.5})
    assert sorted(texts) == ["provenance.json", "sbom.cdx.json"]
    for name, text in texts.items():
        assert (made.path / name).read_bytes() == text
    check(made, keys[1])


def test_the_report_may_change(artifact: Artifact, keys: tuple[Path, Path]) -> None:
    (artifact.path / "report.json").write_text('{"gates": []}')
    check(artifact, keys[1])
    (artifact.path / "report.json").unlink()
    check(artifact, keys[1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: _flip(a / "engines/target/weights.bin"), "the file is corrupted"),
        (lambda a: _flip(a / "tokenizer/tokenizer.json"), "the file is corrupted"),
        (lambda a: _flip(a / "provenance.json"), r"provenance\.json: is not the file that was sig"),
        (lambda a: (a / "sbom.cdx.json").unlink(), r"sbom\.cdx\.json: the file was signed and is"),
        (lambda a: (a / "more").write_text("x"), "more: is no file of the artifact, and no sign"),
        (lambda a: (a / "model.sig").unlink(), r"a: is not signed \(optc sign --key\)"),
        (lambda a: (a / "model.sig").write_text("{}"), "missing required field 'mediaType'"),
    ],
)
def test_what_was_changed_afterwards(
    artifact: Artifact, keys: tuple[Path, Path], change: Callable[[Path], object], message: str
) -> None:
    change(artifact.path)
    with pytest.raises(ArtifactError, match=message) as caught:
        check(artifact, keys[1])
    assert caught.value.exit_code == 5


def test_another_manifest_with_digests_that_match(
    artifact: Artifact, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    """Who can write the files can make digests that match, but no signature."""
    other = write_toy(tmp_path / "b")
    path = other.path / "manifest.json"
    value = json.loads((artifact.path / "manifest.json").read_bytes())
    from optc.artifact.manifest import digest_of

    value["name"] = "another"
    path.write_text(json.dumps({**value, "digest": digest_of(value)}))
    (artifact.path / "manifest.json").write_bytes(path.read_bytes())
    with pytest.raises(SignatureError, match=r"manifest\.json: is not the file that was signed"):
        check(artifact, keys[1])


def test_the_signature_of_another_key(artifact: Artifact, tmp_path: Path) -> None:
    _, other = write_keys(tmp_path, "other")
    with pytest.raises(SignatureError, match="another key signed it: sha256"):
        check(artifact, other)
    path = artifact.path / "model.sig"
    value = json.loads(path.read_text())
    value["verificationMaterial"]["publicKey"]["hint"] = PublicKey.read(other).hint
    path.write_text(json.dumps(value))
    with pytest.raises(SignatureError, match="the signature does not fit"):
        check(artifact, other)


def test_a_signed_text_that_is_no_statement(artifact: Artifact, keys: tuple[Path, Path]) -> None:
    key = PrivateKey(keys[0])
    bundle = Bundle(b"{", key.sign(pre_authentication(b"{")), key.public.hint)
    (artifact.path / "model.sig").write_text(json.dumps(bundle.to_json()))
    with pytest.raises(ArtifactError, match="the statement is not JSON"):
        check(artifact, keys[1])


def test_files_that_do_not_belong_there_are_not_signed(
    tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    made = write_toy(tmp_path / "a")
    (made.path / "notes.txt").write_text("x")
    with pytest.raises(SignatureError, match=r"notes\.txt: is no file of the artifact"):
        sign(made, PrivateKey(keys[0]))
    assert not (made.path / "model.sig").exists()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_toy(tmp_path / "a")
    (made.path / "model.sig").mkdir()
    with pytest.raises(InputError, match=r"model\.sig: cannot be written: .*must be writable"):
        sign(made, PrivateKey(keys[0]))
    assert not list(made.path.glob(".*")), "what was half written stays"


def verify_with_model_signing(artifact: Path, public: Path) -> None:
    """What ``model_signing verify key`` does.

    Raises:
        ValueError: It does not verify.
    """
    verifying = pytest.importorskip("model_signing.verifying")
    config = verifying.Config().use_elliptic_key_verifier(public_key=public)
    config.verify(artifact, artifact / "model.sig")


def test_model_signing_verifies_what_optc_signed(
    artifact: Artifact, keys: tuple[Path, Path]
) -> None:
    verify_with_model_signing(artifact.path, keys[1])
    (artifact.path / "report.json").write_text("{}")
    verify_with_model_signing(artifact.path, keys[1])


@pytest.mark.parametrize(
    "name", ["engines/target/weights.bin", "manifest.json", "provenance.json", "sbom.cdx.json"]
)
def test_a_changed_byte_fails_in_both(
    artifact: Artifact, keys: tuple[Path, Path], name: str
) -> None:
    _flip(artifact.path / name)
    with pytest.raises(ValueError, match=rf"Hash mismatch for .*{re.escape(name)}"):
        verify_with_model_signing(artifact.path, keys[1])
    with pytest.raises(ArtifactError):
        check(artifact, keys[1])


@pytest.mark.parametrize("ignored", [["model.sig"], ["model.sig", "report.json"]])
def test_optc_verifies_what_model_signing_signed(
    artifact: Artifact, keys: tuple[Path, Path], ignored: list[str]
) -> None:
    signing = pytest.importorskip("model_signing.signing")
    hashing = pytest.importorskip("model_signing.hashing")
    paths = [artifact.path / name for name in ignored]
    config = signing.Config().use_elliptic_key_signer(private_key=keys[0])
    config.set_hashing_config(hashing.Config().set_ignored_paths(paths=paths))
    config.sign(artifact.path, artifact.path / "model.sig")
    check(artifact, keys[1])
    _flip(artifact.path / "report.json")
    if "report.json" in ignored:
        check(artifact, keys[1])
        return
    with pytest.raises(SignatureError, match=r"report\.json: is not the file that was signed"):
        check(artifact, keys[1])


@pytest.mark.parametrize("at", [2, 31, 63])
def test_every_character_of_a_digest_counts(at: int, tmp_path: Path) -> None:
    digest = "ab" * 32
    other = digest[:at] + "0" + digest[at + 1 :]
    _compare(tmp_path, {"a": digest}, {"a": digest})
    with pytest.raises(SignatureError, match="is not the file that was signed"):
        _compare(tmp_path, {"a": digest}, {"a": other})


@pytest.mark.parametrize(
    ("signed", "present", "message"),
    [
        ("ab", "b", "a: the file was signed and is missing"),
        ("a", "ab", "b: the signature does not cover it"),
        ("", "a", "a: the signature does not cover it"),
        ("b", "ac", "a: the signature does not cover it"),  # the first by name is said
        ("bc", "a", "a: the signature does not cover it"),
        ("ac", "b", "a: the file was signed and is missing"),
    ],
)
def test_files_of_one_side_alone(signed: str, present: str, message: str, tmp_path: Path) -> None:
    digests = dict.fromkeys("abc", "ab" * 32)
    with pytest.raises(SignatureError) as caught:
        _compare(tmp_path, {n: digests[n] for n in signed}, {n: digests[n] for n in present})
    assert caught.value.where == str(tmp_path / message[0])
    assert caught.value.message == message[3:]


@pytest.mark.parametrize("name", ["manifest.json", "provenance.json", "sbom.cdx.json"])
def test_a_link_is_not_the_file_that_was_signed(
    name: str, artifact: Artifact, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    path = artifact.path / name
    kept = tmp_path / "kept"
    assert path.is_file(), [one.name for one in artifact.path.iterdir()]
    path.rename(kept)
    path.symlink_to(kept)
    with pytest.raises(SignatureError, match="was signed and is missing"):
        check_signature(artifact, PublicKey.read(keys[1]))
