"""Log-probabilities as OpenAI's answers have them, and of prompts as those of vLLM's server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
    from optc.runtime.scoring.token_logprobs import TokenLogprobs

#: The text of one token.
Shown = Callable[[int], str]


def of_completion(
    tokens: Sequence[int], each: Iterable[TokenLogprobs | None], shown: Shown
) -> dict[str, Any]:
    """``logprobs`` of a choice of completions.

    Args:
        tokens: [n] of the choice's text, an echoed prompt among them.
        each: [n] theirs; None of a prompt's first.
        shown: Texts of tokens. ``text_offset`` counts their characters.
    """
    texts = [shown(token) for token in tokens]
    found = list(each)
    offsets, at = [], 0
    for text in texts:
        offsets.append(at)
        at += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [None if one is None else one.logprob for one in found],
        "top_logprobs": [
            None if one is None else {shown(token): logprob for token, logprob in one.top}
            for one in found
        ],
        "text_offset": offsets,
    }


def of_turn(each: Iterable[TokenLogprobs], shown: Shown) -> dict[str, Any]:
    """``logprobs`` of a choice of chat completions."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = shown(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

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
                str(token): {"logprob": logprob, "rank": rank, "decoded_token": shown(token)}
                for token, logprob, rank in [*ranked, (one.token_id, one.logprob, one.rank)]
            }
        )
    return found
