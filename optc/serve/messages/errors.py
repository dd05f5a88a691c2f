"""Errors in Anthropic's form.

https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.serve.api_errors import APIError

#: Types of errors by status.
_ERRORS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def error_json(error: APIError, request_id: str | None = None) -> dict[str, Any]:
    """An error in Anthropic's form."""
    kind = _ERRORS.get(error.status, "invalid_request_error")
    inner = {"type": kind, "message": error.message}
    return {"type": "error", "error": inner, "request_id": request_id}
