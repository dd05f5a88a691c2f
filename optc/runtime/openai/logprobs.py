"""Log-probabilities as OpenAI's answers have them, and of prompts as those of vLLM's server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
    from optc.runtime.scoring.token_logprobs import TokenLogprobs

#: The text of one token, and its bytes.
Shown = Callable[[int], str]
Bytes = Callable[[int], bytes]
#: JSON has no infinities: of a token that cannot be drawn.
_LEAST = -9999.0


def of_completion(
    tokens: Sequence[int], each: Iterable[TokenLogprobs | None], shown: Shown, offset: int = 0
) -> dict[str, Any]:
    """``logprobs`` of a choice of completions.

    Args:
        tokens: [n] of the choice's text, an echoed prompt among them.
        each: [n] theirs; None of a prompt's first.
        shown: Texts of tokens. ``text_offset`` counts their characters.
        offset: Characters before the first one.
    """
    texts = [shown(token) for token in tokens]
    found = list(each)
    offsets, at = [], offset
    for text in texts:
        offsets.append(at)
        at += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [None if one is None else _finite(one.logprob) for one in found],
        "top_logprobs": [
            None if one is None else {shown(token): _finite(logprob) for token, logprob in one.top}
            for one in found
        ],
        "text_offset": offsets,
    }


def of_turn(
    each: Iterable[TokenLogprobs], shown: Shown, bytes_of: Bytes | None = None
) -> dict[str, Any]:
    """``logprobs`` of a choice of chat completions.

    Args:
        each: Of its tokens.
        shown: Texts of tokens.
        bytes_of: Their bytes, which may be a part of a character; None are those of the texts.
    """

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = shown(token)
        data = text.encode() if bytes_of is None else bytes_of(token)
        return {"token": text, "logprob": _finite(logprob), "bytes": list(data)}

    content = [
        {
            **entry(one.token_id, one.logprob),
            "top_logprobs": [entry(token, logprob) for token, logprob in one.top],
        }
        for one in each
    ]
    return {"content": content, "refusal": None}


def of_prompt(scored: PromptLogprobs, shown: Shown) -> list[dict[str, Any] | None]:
    """``prompt_logprobs``, by position and token id; null is the first token's."""
    found: list[dict[str, Any] | None] = []
    for one in scored:
        if one is None:
            found.append(None)
            continue
        ranked = [(token, logprob, rank) for rank, (token, logprob) in enumerate(one.top, 1)]
        found.append(
            {
                str(token): {
                    "logprob": _finite(logprob),
                    "rank": rank,
                    "decoded_token": shown(token),
                }
                for token, logprob, rank in [*ranked, (one.token_id, one.logprob, one.rank)]
            }
        )
    return found


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
