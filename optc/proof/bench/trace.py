"""Recorded traces: JSON lines, one request a line.

``{"arrival_s": 0.25, "prompt_tokens": 310, "output_tokens": 80, "prefix": "chat-7"}``: a time from
the start, a length (or the text itself as ``prompt``), the tokens to generate, and optionally a
prefix id. Prompts of one id begin alike: entirely, as the turns of a conversation do, or in their
first ``prefix_tokens``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.options.user_text import read_user_text
from optc.system.safe_json import parse_json

_KEYS = {"arrival_s", "prompt_tokens", "prompt", "output_tokens", "prefix", "prefix_tokens"}


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Fields of `optc.proof.bench.workload.Arrival`, in order of time.

    Raises:
        InputError: The file cannot be read or is empty, or a line is not such an object; names it.
    """
    lines = read_user_text(path, what="the trace").splitlines()
    found = [_entry(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError("holds no requests", where=str(path))
    return sorted(found, key=lambda entry: float(entry["arrival_s"]))


def _entry(line: str, where: str) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=where) from error
    if not isinstance(value, dict) or not set(value) <= _KEYS:
        raise InputError("is not a request", where=where, hint=f"keys: {', '.join(sorted(_KEYS))}")
    if ("prompt" in value) == ("prompt_tokens" in value):
        raise InputError("needs either prompt or prompt_tokens", where=where)
    prefix, text = value.get("prefix"), value.get("prompt")
    if text is not None and (not isinstance(text, str) or not text):
        raise InputError("prompt is no text", where=where)
    return {
        "arrival_s": _time(value.get("arrival_s"), where),
        "prompt_tokens": 0 if text else _count(value, "prompt_tokens", where),
        "output_tokens": _count(value, "output_tokens", where),
        "prefix": None if prefix is None else str(prefix),
        "prefix_tokens": _count(value, "prefix_tokens", where)
        if "prefix_tokens" in value
        else None,
        "text": text,
    }


def _time(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InputError(f"arrival_s is {value!r}, not seconds", where=where)
    return float(value)


def _count(entry: dict[str, Any], key: str, where: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{key} is {value!r}, not a number of tokens", where=where)
    return value
