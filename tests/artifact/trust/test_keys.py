"""Keys in PEM files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from optc.artifact.trust.keys import PrivateKey, PublicKey
from optc.errors import InputError, SignatureError, UnavailableError
from tests.artifact.trust.keys import write_keys


@pytest.mark.parametrize("curve", ["SECP256R1", "SECP384R1", "SECP521R1"])
def test_a_signature_fits_what_was_signed(tmp_path: Path, curve: str) -> None:
    private, public = write_keys(tmp_path, curve=curve)
    key, opened = PrivateKey(private), PublicKey.read(public)
    assert key.public.hint == opened.hint
    signature = key.sign(b"text")
    opened.verify(signature, b"text", "here")
    with pytest.raises(SignatureError, match="here: the signature does not fit"):
        opened.verify(signature, b"texts", "here")
    with pytest.raises(SignatureError):
        opened.verify(signature[:-1], b"text", "here")
    _, other = write_keys(tmp_path, "other", curve)
    with pytest.raises(SignatureError):
        PublicKey.read(other).verify(signature, b"text", "here")


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, curve="SECP256K1")
    with pytest.raises(InputError, match=r"is a key of another kind \(secp256k1\) .*P-256"):
        PrivateKey(private)
    with pytest.raises(InputError, match="another kind"):
        PublicKey.read(public)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private.write_bytes(Ed25519PrivateKey.generate().private_bytes(*form))
    with pytest.raises(InputError, match=r"another kind \(Ed25519PrivateKey\)"):
        PrivateKey(private)


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    with pytest.raises(InputError, match=r"key\.pub: is no private key in PEM form \(openssl"):
        PrivateKey(public)
    with pytest.raises(InputError, match=r"key\.pem: is no public key in PEM form \(openssl"):
        PublicKey.read(private)
    for read in (PrivateKey, PublicKey.read):
        with pytest.raises(InputError, match="absent: cannot be read: No such file"):
            read(tmp_path / "absent")


def test_encrypted_keys(tmp_path: Path) -> None:
    plain, _ = write_keys(tmp_path)
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(plain.read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "sealed.pem").write_bytes(key.private_bytes(*form))
    assert (
        PrivateKey(tmp_path / "sealed.pem", b"secret").public.hint == PrivateKey(plain).public.hint
    )
    with pytest.raises(InputError, match=r"the key is encrypted \(--password-file"):
        PrivateKey(tmp_path / "sealed.pem")
    with pytest.raises(InputError, match="cannot be opened"):
        PrivateKey(tmp_path / "sealed.pem", b"wrong")
    with pytest.raises(InputError, match="the key is not encrypted"):
        PrivateKey(plain, b"secret")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for read in (PrivateKey, PublicKey.read):
        with pytest.raises(UnavailableError, match=r"'cryptography'.*pip install 'optc\[sign\]'"):
            read(tmp_path / "absent")
