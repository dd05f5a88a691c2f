"""A signed statement as a Sigstore bundle around a DSSE envelope.

https://docs.sigstore.dev/about/bundle and https://github.com/secure-systems-lab/dsse: what is
signed is the statement's bytes with their type and length before them, never JSON that was read and
written again. The bundle names the public key by the sha256 of its PEM text.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from optc.artifact.jsonio import Fields
from optc.errors import SignatureError

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds.

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
    f = Fields(value, where)
    f.choice("mediaType", [MEDIA_TYPE])
    material, envelope = f.child("verificationMaterial"), f.child("dsseEnvelope")
    envelope.choice("payloadType", [PAYLOAD_TYPE])
    if "publicKey" not in material.values:
        raise SignatureError(
            "was not signed by a key", where=where, hint="model_signing verify checks certificates"
        )
    signatures = envelope.children("signatures")
    if len(signatures) != 1:
        raise f.error(f"it holds {len(signatures)} signatures, not one")
    return Bundle(
        _decoded(envelope, "payload"),
        _decoded(signatures[0], "sig"),
        material.child("publicKey").get("hint", str),
    )


def pre_authentication(payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's PAE."""
    head = f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} "
    return head.encode() + payload


def _decoded(f: Fields, key: str) -> bytes:
    try:
        return base64.b64decode(f.get(key, str), validate=True)
    except (binascii.Error, ValueError) as error:
        raise f.error(f"the key {key!r} is not base64") from error
