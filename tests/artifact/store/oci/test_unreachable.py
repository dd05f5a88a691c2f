"""Each cause has its hint."""

from __future__ import annotations

import socket
import ssl

import pytest

from optc.artifact.store.oci.unreachable import reach_hint


@pytest.mark.parametrize(
    ("reason", "plain", "hint"),
    [
        (ConnectionRefusedError(), False, "nothing listens there"),
        (socket.gaierror(), False, "no host has this name"),
        (ssl.SSLCertVerificationError(), False, "its certificate is not trusted"),
        (ssl.SSLError(), False, "--plain-http"),
        (ssl.SSLError(), True, "is the host right, and is there a network"),
        (TimeoutError(), False, "does a firewall or a proxy lie between"),
        ("no route", False, "is the host right, and is there a network"),
    ],
)
def test_hints(reason: object, plain: bool, hint: str) -> None:
    assert hint in reach_hint(reason, plain_http=plain)
