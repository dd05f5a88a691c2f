"""`CompletionWriter`: choices of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.runtime.openai.logprobs import of_completion, of_prompt
from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.requests.prompts import Chat
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.envelope import Envelope
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
        self._asked = asked
        self._token_ids = asked.token_ids
        self._characters: dict[int, int] = {}  # of the tokens of each choice so far

    def opening(self, choice: int) -> dict[str, Any] | None:
        """The prompt, of texts that begin with it."""
        prompt = self._prompt(choice)
        return _choice(choice, prompt, None, None) if prompt else None

    def delta(self, choice: int, delta: Delta) -> dict[str, Any] | None:
        """The chunks that a delta adds."""
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
        scored, positions = output.prompt_logprobs, completion.logprobs
        if self._asked.echo and scored is not None and positions is not None and self._texts:
            tokens = [*output.prompt_token_ids, *completion.token_ids]
            both = [*scored, *positions]
            logprobs: object = of_completion(tokens, both, self._texts.text_of)
        else:
            logprobs = self._logprobs(choice, positions or ())
        text = self._prompt(choice) + completion.text
        found = _choice(choice, text, logprobs, reason)
        if scored is not None and not self._asked.echo and self._texts:
            found["prompt_logprobs"] = of_prompt(scored, self._texts.text_of)
        if self._token_ids:
            found["prompt_token_ids"] = list(output.prompt_token_ids)
            found["token_ids"] = list(completion.token_ids)
        return found

    def _prompt(self, choice: int) -> str:
        """The beginning of the text of a choice."""
        if not self._asked.echo:
            return ""
        prompt = self._asked.requests[choice // self._asked.n].prompt
        tokenizer = self._asked.model.engine.tokenizer
        if isinstance(prompt, str):
            return prompt
        return "" if tokenizer is None or isinstance(prompt, Chat) else tokenizer.decode(prompt)

    def _logprobs(self, choice: int, positions: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not positions or self._texts is None:
            return None
        begun = self._characters.get(choice, 0)
        tokens = [one.token_id for one in positions]
        found = of_completion(tokens, positions, self._texts.text_of, begun)
        self._characters[choice] = begun + sum(map(len, found["tokens"]))
        return found


def _choice(choice: int, text: str, logprobs: object, reason: str | None) -> dict[str, Any]:
    return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
