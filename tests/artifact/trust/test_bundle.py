"""Bundles as JSON, and the bytes that are signed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from optc.artifact.trust.bundle import Bundle, pre_authentication, read_bundle
from optc.errors import ArtifactError, SignatureError

BUNDLE = Bundle(b'{"a": 1}', b"\x30\x00\xff", "ab" * 32)


def test_a_bundle_is_read_as_it_was_written() -> None:
    value = BUNDLE.to_json()
    assert value["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert read_bundle(value, "model.sig") == BUNDLE


def test_the_bytes_that_are_signed() -> None:
    """The example of https://github.com/secure-systems-lab/dsse/blob/master/protocol.md, with the
    type of in-toto."""
    assert pre_authentication(b"hello world") == (
        b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    )


def _certificate(value: dict[str, Any]) -> None:
    value["verificationMaterial"] = {"certificate": {"rawBytes": "AA=="}}


def _two(value: dict[str, Any]) -> None:
    value["dsseEnvelope"]["signatures"] *= 2


def _no_base64(value: dict[str, Any]) -> None:
    value["dsseEnvelope"]["payload"] = "e30"


def _another_type(value: dict[str, Any]) -> None:
    value["dsseEnvelope"]["payloadType"] = "text/plain"


def _no_envelope(value: dict[str, Any]) -> None:
    del value["dsseEnvelope"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_certificate, "was not signed by a key"),
        (_two, "signatures: expected 'array' of length <= 1"),
        (_no_base64, "the key 'payload' is not base64"),
        (_another_type, r"payloadType: expected text that matches \(application"),
        (_no_envelope, "missing required field 'dsseEnvelope'"),
    ],
)
def test_other_bundles_are_refused(change: Callable[[dict[str, Any]], None], message: str) -> None:
    value = BUNDLE.to_json()
    change(value)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_bundle(value, "model.sig")
    assert isinstance(caught.value, SignatureError) is (change is _certificate)


@pytest.mark.parametrize("junk", ["{}*", "*{}", "{}\n", "{} ", "-_{}"])
@pytest.mark.parametrize("key", ["payload", "sig"])
def test_base64_with_anything_else_is_none(key: str, junk: str) -> None:
    """One reader skips what another may not: both must see the same bytes."""
    value = BUNDLE.to_json()
    envelope = value["dsseEnvelope"]
    holder = envelope if key == "payload" else envelope["signatures"][0]
    holder[key] = junk.format(holder[key])
    with pytest.raises(ArtifactError, match="is not base64"):
        read_bundle(value, "model.sig")
