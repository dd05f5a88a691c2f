"""``usage``: how many tokens an answer took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.outputs import RequestOutput


def usage_of(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """Of finished requests; a prompt of several texts counts once."""
    read = sum(output.prompt_tokens for output in outputs)
    written = sum(output.output_tokens for output in outputs)
    cached = sum(min(o.metrics.cached_tokens, o.prompt_tokens) for o in outputs)
    return counted(read, written) | {"prompt_tokens_details": {"cached_tokens": cached}}


def counted(read: int, written: int) -> dict[str, Any]:
    """Of so many tokens."""
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
