"""`CompletionWriter`: choices of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.envelope import Envelope
from optc.serve.answering.logprobs import of_completion
from optc.serve.answering.token_texts import TokenTexts, token_texts
from optc.serve.answering.writer import finish_reason
from optc.serve.asking.asked import Asked


class CompletionWriter:
    """Writes texts.

    Args:
        asked: What was asked for.
    """

    def __init__(self, asked: Asked) -> None:
        self.envelope = Envelope("cmpl", "text_completion", "text_completion", asked.model)
        tokenizer = asked.model.engine.tokenizer
        self._texts: TokenTexts | None = None if tokenizer is None else token_texts(tokenizer)
        self._token_ids = asked.token_ids
        self._characters: dict[int, int] = {}  # of the tokens of each choice so far

    def opening(self, choice: int) -> dict[str, Any] | None:
        """Nothing: a text begins with its first characters."""
        return None

    def delta(self, choice: int, delta: Delta) -> dict[str, Any] | None:
        """What a delta adds."""
        reason = finish_reason(delta.finish_reason)
        shows = delta.text or delta.logprobs or reason or (self._token_ids and delta.token_ids)
        if not shows:
            return None
        logprobs = self._logprobs(choice, delta.logprobs)
        more = {"token_ids": list(delta.token_ids)} if self._token_ids else {}
        return _choice(choice, delta.text, logprobs, reason) | more

    def whole(self, choice: int, completion: Completion, output: RequestOutput) -> dict[str, Any]:
        """A finished text."""
        reason = finish_reason(completion.finish_reason)
        logprobs = self._logprobs(choice, completion.logprobs or ())
        found = _choice(choice, completion.text, logprobs, reason)
        if self._token_ids:
            found["prompt_token_ids"] = list(output.prompt_token_ids)
            found["token_ids"] = list(completion.token_ids)
        return found

    def _logprobs(self, choice: int, positions: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not positions or self._texts is None:
            return None
        begun = self._characters.get(choice, 0)
        found = of_completion(positions, self._texts, begun)
        self._characters[choice] = begun + sum(map(len, found["tokens"]))
        return found


def _choice(choice: int, text: str, logprobs: object, reason: str | None) -> dict[str, Any]:
    return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
