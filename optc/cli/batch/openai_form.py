"""Lines of OpenAI's Batch API: requests of completions and of chat completions, and responses.

``{"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}`` becomes
``{"id": …, "custom_id": …, "response": {"status_code": 200, "body": {…}}, "error": null}``
(https://platform.openai.com/docs/api-reference/batch).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optc.cli.batch.asked import Asked
from optc.errors import InputError, OptcError
from optc.runtime.openai.fields import RENAMED, asked, take_logprobs, take_variables
from optc.runtime.openai.logprobs import of_completion, of_prompt, of_turn
from optc.runtime.openai.structures import take_structure

if TYPE_CHECKING:
    from optc import RequestOutput
    from optc.runtime.outputs import Completion
    from optc.runtime.requests.prompts import Prompt

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_REASONS = {"deadline": "length"}


@dataclass(frozen=True)
class Conversing:
    """The part of a line that is called a conversation; not checked yet.

    Attributes:
        messages: What it calls messages.
        variables: Of the chat template.
    """

    messages: object
    variables: Mapping[str, Any] = field(default_factory=dict)


def is_openai(value: Mapping[str, Any]) -> bool:
    """True if a line is one of an OpenAI batch."""
    return "body" in value or "url" in value


def openai_request(value: Mapping[str, Any]) -> tuple[object, dict[str, Any]]:
    """A line's subject (its prompt, its prompts, or the conversation), and the sampling
    parameters that it states.

    Raises:
        InputError: The line asks for something else.
    """
    url, body = value.get("url"), value.get("body")
    if url not in (CHAT, COMPLETIONS):
        raise InputError(f"{url!r} is not served", where="url", hint=f"{CHAT} or {COMPLETIONS}")
    if value.get("method", "POST") != "POST":
        raise InputError("the method is POST", where="method")
    wanted = "messages" if url == CHAT else "prompt"
    if not isinstance(body, dict) or body.get(wanted) is None:
        raise InputError(f"it has no {wanted}", where="body")
    changes = {RENAMED.get(key, key): one for key, one in asked(body).items()}
    prompt = body[wanted]
    changes.pop(wanted, None)
    if "stream" in changes:
        raise InputError("answers in files do not stream", where="stream", hint="leave it out")
    changes |= take_logprobs(changes, chat=url == CHAT)
    changes |= take_structure(changes)
    if url != CHAT:
        return prompt, changes
    return Conversing(prompt, take_variables(changes)), changes


@dataclass(frozen=True)
class OpenAIForm:
    """Answers as OpenAI writes them.

    Attributes:
        number: Of the line in the input, from 1; the ``id`` of its answer has it.
        custom_id: Its own name for itself.
        chat: It asks for a turn of a conversation.
        model: What it calls the model.
        echo: The choices' texts begin with their prompt's.
    """

    number: int
    custom_id: str
    chat: bool
    model: str
    echo: bool = False

    @classmethod
    def of(cls, number: int, value: Mapping[str, Any]) -> OpenAIForm:
        """The form of a line.

        Raises:
            InputError: It has no ``custom_id``.
        """
        custom_id, body = value.get("custom_id"), value.get("body")
        if not isinstance(custom_id, str):
            raise InputError("a line of a batch has a text as its custom_id", where="custom_id")
        fields = body if isinstance(body, dict) else {}
        chat = value.get("url") == CHAT
        echo = not chat and fields.get("echo") is True
        return cls(number, custom_id, chat, str(fields.get("model") or ""), echo)

    def answer(self, asked: Asked, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The line of finished requests: of each prompt all completions, one after the other."""
        choices = [
            self._choice(asked, prompt, output, one)
            for prompt, output in zip(asked.prompts, outputs, strict=True)
            for one in output.completions
        ]
        read = sum(output.prompt_tokens for output in outputs)
        written = sum(output.output_tokens for output in outputs)
        body = {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number}",
            "object": "chat.completion" if self.chat else "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [{"index": index, **one} for index, one in enumerate(choices)],
            "usage": {
                "prompt_tokens": read,
                "completion_tokens": written,
                "total_tokens": read + written,
            },
        }
        response = {"status_code": 200, "request_id": f"req_{self.number}", "body": body}
        return self._line(response, None)

    def failure(self, error: OptcError) -> dict[str, Any]:
        """The line of a request that failed."""
        return self._line(None, {"code": error.kind, "message": error.render()})

    def _choice(
        self, asked: Asked, prompt: Prompt, output: RequestOutput, one: Completion
    ) -> dict[str, Any]:
        text, scored = one.text, output.prompt_logprobs
        if self.echo:
            read = prompt if isinstance(prompt, str) else asked.text_of(output.prompt_token_ids)
            text = read + text
        choice = {
            **self._said(text, one.reasoning),
            "logprobs": self._logprobs(asked, output, one),
            "finish_reason": _REASONS.get(one.finish_reason, one.finish_reason),
        }
        if scored is not None and not self.echo:
            choice["prompt_logprobs"] = of_prompt(scored, asked.shown)
        return choice

    def _logprobs(
        self, asked: Asked, output: RequestOutput, one: Completion
    ) -> dict[str, Any] | None:
        if one.logprobs is None:
            return None
        if self.chat:
            return of_turn(one.logprobs, asked.shown)
        scored = output.prompt_logprobs
        if self.echo and scored is not None:
            tokens = [*output.prompt_token_ids, *one.token_ids]
            return of_completion(tokens, [*scored, *one.logprobs], asked.shown)
        return of_completion(one.token_ids, one.logprobs, asked.shown)

    def _said(self, text: str, reasoning: str) -> dict[str, Any]:
        if not self.chat:
            return {"text": text}
        thought = {"reasoning": reasoning} if reasoning else {}
        return {"message": {"role": "assistant", "content": text, **thought}}

    def _line(self, response: object, error: object) -> dict[str, Any]:
        head = {"id": f"batch_req_{self.number}", "custom_id": self.custom_id}
        return {**head, "response": response, "error": error}
