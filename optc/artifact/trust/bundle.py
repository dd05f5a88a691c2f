"""A signed statement as a Sigstore bundle around a DSSE envelope.

https://docs.sigstore.dev/about/bundle and https://github.com/secure-systems-lab/dsse: what is
signed is the statement's bytes with their type and length before them, never JSON that was read and
written again. The bundle names the public key by the sha256 of its PEM text.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from optc.errors import ArtifactError, SignatureError
from optc.system.foreign.typed_json import NEWER, exactly, typed

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


class _Signature(Struct, frozen=True):
    sig: str


class _Envelope(Struct, frozen=True):
    payload: str
    payload_type: Annotated[str, exactly(PAYLOAD_TYPE)] = field(name="payloadType")
    signatures: Annotated[list[_Signature], Meta(min_length=1, max_length=1)]


class _Key(Struct, frozen=True):
    hint: str


class _Material(Struct, frozen=True):
    public_key: _Key | None = field(default=None, name="publicKey")


class _Bundle(Struct, frozen=True):
    """The fields of a bundle that are read."""

    media_type: Annotated[str, exactly(MEDIA_TYPE)] = field(name="mediaType")
    material: _Material = field(name="verificationMaterial")
    envelope: _Envelope = field(name="dsseEnvelope")


@dataclass(frozen=True)
class Bundle:
    """The contents of a bundle.

    Attributes:
        payload: Bytes of the statement.
        signature: Of `pre_authentication` of them.
        key_hint: sha256 in hex of the public key's PEM text.
    """

    payload: bytes
    signature: bytes
    key_hint: str

    def to_json(self) -> dict[str, Any]:
        """The bundle's JSON object."""
        return {
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": {"publicKey": {"hint": self.key_hint}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(self.payload).decode(),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": base64.b64encode(self.signature).decode(), "keyid": ""}],
            },
        }


def read_bundle(value: object, where: str) -> Bundle:
    """The bundle in a JSON object.

    Raises:
        ArtifactError: A key is missing or of another type.
        SignatureError: It is another kind of bundle, such as one that a certificate signed.
    """
    found = typed(value, _Bundle, where)
    key = found.material.public_key
    if key is None:
        raise SignatureError(
            "was not signed by a key", where=where, hint="model_signing verify checks certificates"
        )
    (signature,) = found.envelope.signatures
    payload = _decoded(found.envelope.payload, "payload", where)
    return Bundle(payload, _decoded(signature.sig, "sig", where), key.hint)


def pre_authentication(payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's PAE."""
    head = f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} "
    return head.encode() + payload


def _decoded(text: str, key: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArtifactError(f"the key {key!r} is not base64", where=where, hint=NEWER) from error
