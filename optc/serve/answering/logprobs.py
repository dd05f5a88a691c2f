"""Log-probabilities in the two forms of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.token_texts import TokenTexts

#: JSON has no infinities: a token that cannot be drawn.
_LEAST = -9999.0


def of_chat(positions: Sequence[TokenLogprobs], texts: TokenTexts) -> dict[str, Any]:
    """``logprobs`` of a choice of a chat completion."""
    return {"content": [_position(one, texts) for one in positions]}


def of_completion(
    positions: Sequence[TokenLogprobs], texts: TokenTexts, offset: int
) -> dict[str, Any]:
    """``logprobs`` of a choice of a completion.

    Args:
        positions: One for each token.
        texts: Of tokens.
        offset: Characters of the text before them.
    """
    tokens = [texts.text_of(one.token_id) for one in positions]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [_finite(one.logprob) for one in positions],
        "top_logprobs": [
            {texts.text_of(token): _finite(logprob) for token, logprob in reversed(one.top)}
            | {texts.text_of(one.token_id): _finite(one.logprob)}
            for one in positions
        ],
        "text_offset": offsets,
    }


def _position(one: TokenLogprobs, texts: TokenTexts) -> dict[str, Any]:
    top = [_token(token, logprob, texts) for token, logprob in one.top]
    return {**_token(one.token_id, one.logprob, texts), "top_logprobs": top}


def _token(token: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    data = texts.bytes_of(token)
    text = data.decode("utf-8", "replace")
    return {"token": text, "logprob": _finite(logprob), "bytes": list(data)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
