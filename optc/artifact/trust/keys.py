"""Keys on elliptic curves, in PEM files: ECDSA with the hash that is as wide as the curve.

The curves are those of Sigstore: NIST's P-256, P-384 and P-521.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.errors import InputError, SignatureError, UnavailableError
from optc.system.foreign.file import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

_CURVES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
_MAKE = "openssl ecparam -genkey -name prime256v1 -noout -out key.pem"


def check_package() -> None:
    """Check that keys can be used here.

    Raises:
        UnavailableError: The package of the extra ``sign`` is not installed.
    """
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "the package 'cryptography' is not installed",
            where="signatures",
            hint="pip install 'optc[sign]'",
        ) from error


class PrivateKey:
    """Signs.

    Args:
        path: PEM file.
        password: Of an encrypted key; None is not encrypted.

    Raises:
        InputError: It cannot be read, is no such key, or the password is wrong or missing.
        UnavailableError: As `check_package`.
    """

    def __init__(self, path: Path, password: bytes | None = None) -> None:
        check_package()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data = _read(path)
        try:
            key: Any = load_pem_private_key(data, password)
        except TypeError as error:  # what the package raises for either
            problem = "is encrypted" if password is None else "is not encrypted"
            hint = "--password-file names what opens it" if password is None else "leave it out"
            raise InputError(f"the key {problem}", where=str(path), hint=hint) from error
        except (ValueError, UnsupportedAlgorithm) as error:
            wrong = "is no private key in PEM form" if password is None else "cannot be opened"
            raise InputError(wrong, where=str(path), hint=_MAKE) from error
        self._key: EllipticCurvePrivateKey = _elliptic(key, path)
        self.public = PublicKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        """The signature of ``data``, in DER."""
        return self._key.sign(data, _algorithm(self._key.curve.name))


class PublicKey:
    """Verifies.

    Attributes:
        hint: sha256 in hex of its PEM text.
    """

    def __init__(self, key: EllipticCurvePublicKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._key = key
        text = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self.hint = hashlib.sha256(text).hexdigest()

    @classmethod
    def read(cls, path: Path) -> PublicKey:
        """The public key in a PEM file.

        Raises:
            InputError: It cannot be read or is no such key.
            UnavailableError: As `check_package`.
        """
        check_package()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        data = _read(path)
        try:
            key: Any = load_pem_public_key(data)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InputError(
                "is no public key in PEM form",
                where=str(path),
                hint="openssl ec -in key.pem -pubout -out key.pub",
            ) from error
        return cls(_elliptic(key, path))

    def verify(self, signature: bytes, data: bytes, where: str) -> None:
        """Check a signature of ``data``.

        Raises:
            SignatureError: It is none by this key.
        """
        from cryptography.exceptions import InvalidSignature

        algorithm = _algorithm(self._key.curve.name)
        try:
            self._key.verify(signature, data, algorithm)
        except InvalidSignature as error:
            raise SignatureError(
                "the signature does not fit: what was signed has been changed, or another key "
                "signed it",
                where=where,
            ) from error


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _elliptic(key: Any, path: Path) -> Any:
    """The key, if it lies on one of the curves.

    Raises:
        InputError: It does not.
    """
    curve = getattr(getattr(key, "curve", None), "name", type(key).__name__)
    if curve not in _CURVES:
        raise InputError(
            f"is a key of another kind ({curve})",
            where=str(path),
            hint=f"one on the curves P-256, P-384 or P-521: {_MAKE}",
        )
    return key


def _algorithm(curve: str) -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    return ECDSA(getattr(hashes, _CURVES[curve])())
