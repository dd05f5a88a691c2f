"""Tells what a registry may do the next time, and waits before it is asked again."""

from __future__ import annotations

import http.client
import ssl
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError

#: Times that something is asked for; what brings bytes begins anew.
TRIES = 4
#: Seconds that a registry may ask to wait; one that wants more is given up.
_LONGEST_S = 60.0
_FIRST_S = 0.5
_AGAIN = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_BROKEN = (
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    TimeoutError,
    http.client.IncompleteRead,
    http.client.RemoteDisconnected,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


def may_pass(error: Exception) -> bool:
    """True for an error that another try may not have. What the disk does is none."""
    if isinstance(error, HTTPError):
        return error.code in _AGAIN and asked_to_wait(error) <= _LONGEST_S
    reason = error.reason if isinstance(error, URLError) else error
    return isinstance(reason, _BROKEN)


def asked_to_wait(error: Exception) -> float:
    """Seconds that an answer asks to wait; 0 where it asks for none."""
    headers: Any = error.headers if isinstance(error, HTTPError) else {}
    text = str(headers.get("Retry-After") or "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def wait(error: Exception, tried: int) -> None:
    """Wait before the next try: as long as the answer asks, else twice as long as before."""
    time.sleep(max(asked_to_wait(error), _FIRST_S * 2 ** (tried - 1)))
