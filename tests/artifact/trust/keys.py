"""Key pairs for signatures, as files."""

from __future__ import annotations

from pathlib import Path

import pytest


def write_keys(folder: Path, name: str = "key", curve: str = "SECP256R1") -> tuple[Path, Path]:
    """``NAME.pem`` and ``NAME.pub``; skips the test where the extra ``sign`` is not installed."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(getattr(ec, curve)())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private.write_bytes(key.private_bytes(*form))
    text = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public.write_bytes(text)
    return private, public
