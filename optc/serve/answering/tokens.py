"""`TokensWriter`: choices of ``/inference/v1/generate``: tokens, and no text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.openai.logprobs import of_prompt, of_turn
from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.envelope import Envelope
from optc.serve.answering.writer import finish_reason
from optc.serve.asking.asked import Asked


class TokensWriter:
    """Writes tokens.

    Args:
        asked: What was asked for.
    """

    def __init__(self, asked: Asked) -> None:
        self.envelope = Envelope("gen", "generate", "generate.chunk", asked.model)

    def opening(self, choice: int) -> dict[str, Any] | None:
        """Nothing."""
        return None

    def delta(self, choice: int, delta: Delta) -> dict[str, Any] | None:
        """The tokens of a step."""
        reason = finish_reason(delta.finish_reason)
        return _choice(choice, delta.token_ids, delta.logprobs, reason)

    def whole(self, choice: int, completion: Completion, output: RequestOutput) -> dict[str, Any]:
        """All tokens."""
        reason = finish_reason(completion.finish_reason)
        found = _choice(choice, completion.token_ids, completion.logprobs or (), reason)
        if output.prompt_logprobs is not None:
            found["prompt_logprobs"] = of_prompt(output.prompt_logprobs, _named)
        return found


def _choice(
    choice: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], reason: str | None
) -> dict[str, Any]:
    return {
        "index": choice,
        "token_ids": list(tokens),
        "logprobs": of_turn(logprobs, _named) if logprobs else None,
        "finish_reason": reason,
    }


def _named(token: int) -> str:
    """A token as vLLM names it where it has no text."""
    return f"token_id:{token}"
