"""``usage``: how many tokens an answer took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.outputs import RequestOutput
from optc.serve.asking.asked import Asked


def usage_of(asked: Asked, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """Of finished requests; a prompt of several texts counts once."""
    read = sum(output.prompt_tokens for output in outputs)
    written = sum(output.output_tokens for output in outputs)
    cached = sum(min(o.metrics.cached_tokens, o.prompt_tokens) for o in outputs)
    found = counted(read, written) | {"prompt_tokens_details": {"cached_tokens": cached}}
    tokenizer = asked.model.engine.tokenizer
    if asked.reading.thoughts is not None and tokenizer is not None:
        thought = sum(
            asked.reading.thought_tokens(one.token_ids, tokenizer)
            for output in outputs
            for one in output.completions
        )
        found["completion_tokens_details"] = {"reasoning_tokens": thought}
    return found


def counted(read: int, written: int) -> dict[str, Any]:
    """Of so many tokens."""
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
