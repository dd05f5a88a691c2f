"""`Tokenizer`: the artifact's tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from optc.errors import ArtifactError, RequestError

Message = Mapping[str, Any]


class Tokenizer:
    """Encodes prompts and decodes tokens.

    Args:
        backend: The tokenizer proper.
        bos_token_id: Put before a prompt if the tokenizer's post-processor does not; None if
            the model wants no such token.
        chat_template: Jinja source that renders messages; empty if there is none.
        special_tokens: Texts that templates use by name: ``bos_token``, ``eos_token``, …
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        chat_template: str = "",
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.bos_token_id = bos_token_id
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        backend.no_truncation()  # a tokenizer file may carry a training-time limit
        backend.no_padding()

    @cached_property
    def longest_token(self) -> int:
        """Most characters of a token; a text has at least one token for so many of its own,
        unless the tokenizer drops some."""
        return max(map(len, self.backend.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``, led by the BOS token if the model wants one.

        Raises:
            RequestError: The text is not valid Unicode, or the tokenizer gives up on it.
        """
        try:
            text.encode("utf-8")  # the tokenizer takes a lone surrogate for no text at all
        except UnicodeEncodeError as error:
            raise RequestError(f"not valid Unicode: {error.reason}", where="prompt") from error
        try:
            # Of a batch, because only then others may run Python meanwhile: the engine's thread.
            batch = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except BaseException as error:  # the package's panics are no Exception
            if type(error).__name__ != "PanicException":
                raise
            message = f"the tokenizer cannot encode the text: {error}"
            raise RequestError(message, where="prompt", hint="shorten or change it") from error
        ids: list[int] = batch[0].ids
        bos = self.bos_token_id
        if add_special_tokens and bos is not None and ids[:1] != [bos]:
            return [bos, *ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens; U+FFFD for bytes that are not UTF-8."""
        text: str = self.backend.decode(ids, skip_special_tokens=True)
        return text

    def render_chat(self, messages: Sequence[Message], **variables: object) -> str:
        """The prompt text of a conversation, ready for the assistant's turn. Special tokens are
        the template's business: `encode_chat` adds none.

        Args:
            messages: ``{"role": …, "content": …}`` in order.
            variables: Further variables of the template.

        Raises:
            RequestError: There is no template, or it refuses the messages.
        """
        if not self.chat_template:
            raise RequestError("the model has no chat template", hint="send a plain prompt")
        return render_template(
            self.chat_template,
            {
                "messages": list(messages),
                "add_generation_prompt": True,
                "tools": None,  # templates ask whether they are none, not whether they exist
                "documents": None,
                **self.special_tokens,
                **variables,
            },
        )

    def encode_chat(self, messages: Sequence[Message], **variables: object) -> list[int]:
        """Token ids of the prompt that `render_chat` gives.

        Raises:
            RequestError: There is no template, or it refuses the messages.
        """
        text = self.render_chat(messages, **variables)
        return self.encode(text, add_special_tokens=False)


def render_template(source: str, variables: Mapping[str, object]) -> str:
    """Render a chat template in Jinja's sandbox: it comes with a model and is not trusted.

    Raises:
        RequestError: The template is wrong or refuses the variables.
    """
    from jinja2 import TemplateError  # only conversations need it
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(source).render(**variables)
    except (TemplateError, TypeError) as error:  # TypeError: text + None and the like
        raise RequestError(f"the chat template fails: {error}", where="messages") from error


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(pattern: str) -> str:
    """Templates may state the date of the conversation."""
    return datetime.now().strftime(pattern)


def _refuse(message: str) -> None:
    raise RequestError(message, where="messages", hint="the model's chat template refuses them")


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a ``tokenizer.json``.

    Raises:
        ArtifactError: The file is not a tokenizer.
    """
    try:
        backend: tokenizers.Tokenizer = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"not a tokenizer: {error}", where=str(path)) from error
    return backend
