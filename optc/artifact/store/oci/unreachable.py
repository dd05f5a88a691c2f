"""Hints for registries that cannot be reached, by the cause."""

from __future__ import annotations

import socket
import ssl


def reach_hint(reason: object, *, plain_http: bool) -> str:
    """The hint.

    Args:
        reason: Of urllib's error.
        plain_http: It was asked without TLS.
    """
    if isinstance(reason, ConnectionRefusedError):
        return "nothing listens there: does the registry run, and is the port right?"
    if isinstance(reason, socket.gaierror):
        return "no host has this name, or there is no network"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "its certificate is not trusted: SSL_CERT_FILE names a file of trusted ones"
    if isinstance(reason, ssl.SSLError) and not plain_http:
        return "--plain-http for a registry without TLS"
    if isinstance(reason, TimeoutError):
        return "is the host right, and does a firewall or a proxy lie between?"
    return "is the host right, and is there a network?"
