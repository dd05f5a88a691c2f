"""`Tokenizer`: the artifact's tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import tokenizers

from optc.errors import ArtifactError, RequestError, RequestTypeError
from optc.runtime.checks import shown
from optc.runtime.text.calls import ArgumentsForm, find_arguments_form, with_arguments
from optc.runtime.text.chat_template import names_read, render_template
from optc.runtime.text.chat_values import Marks, plain_values, unmarked
from optc.runtime.text.control_tokens import (
    ControlTokens,
    added_texts,
    encode_one,
    with_special_tokens,
)
from optc.runtime.text.left_out import check_shown, with_known_role
from optc.runtime.text.messages import (
    CONTINUE,
    PROBE,
    Form,
    cut_at_tag,
    find_form,
    normalized,
    tagged,
    with_contents,
)
from optc.runtime.text.rust_errors import rust_errors
from optc.system.foreign.file import read_file
from optc.system.logs.logger import logger
from optc.system.logs.named_once import NamedOnce

Message = Mapping[str, Any]
#: Conversations that show what a template puts around messages, whose content is no token.
_USER = {"role": "user", "content": PROBE}
_PROBES: tuple[list[Message], ...] = (
    [_USER],
    [_USER, {"role": "assistant", "content": PROBE}, _USER],
    [{"role": "system", "content": PROBE}, _USER],
)
#: Variables whose contents the model is to read.
_CONTENTS = frozenset({"tools", "documents"})
#: Those that say how to render, which templates need not read.
_OF_RENDERING = frozenset({CONTINUE, "add_generation_prompt", "messages"})

_LOG = logger(__name__)


class RenderedChat(NamedTuple):
    """A conversation as a chat template renders it.

    Attributes:
        text: The prompt; its control texts are tokens.
        restored: Characters in it that stand for the first ones of control texts that are content.
    """

    text: str
    restored: dict[str, str]

    @property
    def unmarked(self) -> RenderedChat:
        """The same prompt, in which all control texts are tokens."""
        return RenderedChat(unmarked(self.text, self.restored), {})


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
        self._forms: dict[str, Form] = {}
        self._noted = NamedOnce()  # variables that the template does not read
        backend.no_truncation()  # a tokenizer file may carry a training-time limit
        backend.no_padding()

    @cached_property
    def longest_token(self) -> int:
        """Most characters of a token; a text has at least one token for so many of its own,
        unless the tokenizer drops some."""
        return max(map(len, self.backend.get_vocab(with_added_tokens=True)), default=1)

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens that no text can write: special ones, and those that the chat template puts
        around messages, which some tokenizers do not call special."""
        others = set(self.special_tokens.values())
        for messages in _PROBES:
            try:
                rendered = self.render_chat(messages) if self.chat_template else ""
            except RequestError:  # not every template takes every conversation
                continue
            others |= {text for text in added_texts(self.backend) if text in rendered}
        return ControlTokens(self.backend, others)

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of ``text``, led by the BOS token if the model wants one.

        Args:
            text: Valid Unicode.
            add_special_tokens: Add the BOS token and what else the tokenizer adds.
            parse_special: Take the text of a control token (``<|end_of_text|>``) for that token.
                Without it all of the text is text: right for what users write.

        Raises:
            RequestError: The text is not valid Unicode, or the tokenizer gives up on it.
        """
        if parse_special:
            encoding = encode_one(self.backend, text)
            ids = with_special_tokens(self.backend, encoding, add_special_tokens)
        else:
            ids = self.control.encode_text(text, add_special_tokens)
        bos = self.bos_token_id
        if add_special_tokens and bos is not None and ids[:1] != [bos]:
            return [bos, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``ids``, without special tokens or with them; U+FFFD for bytes that are not
        UTF-8."""
        text: str = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def render_chat(self, messages: Sequence[Message], **variables: object) -> str:
        """The prompt text of a conversation, ready for the assistant's turn.

        The text does not tell the template's control tokens from what messages contain: to get
        token ids use `encode_chat`.

        Args:
            messages: ``{"role": …, "content": …}`` in order.
            variables: Further variables of the template; ``continue_final_message=True`` ends in
                the midst of the last message instead, for the model to go on with it.

        Raises:
            RequestError: There is no template, or it refuses the messages.
            RequestTypeError: The messages are no list of mappings of JSON values.
        """
        return self._shown(self._plain_chat(messages, variables))

    def encode_chat(self, messages: Sequence[Message], **variables: object) -> list[int]:
        """Token ids of the prompt that `render_chat` gives, where only the template writes control
        tokens: their texts in messages and variables are ordinary text.

        Raises:
            RequestError: There is no template, or it refuses the messages.
            RequestTypeError: The messages are no list of mappings of JSON values.
        """
        return self.encode_rendered(self.mark_chat(messages, **variables))

    def mark_chat(self, messages: Sequence[Message], **variables: object) -> RenderedChat:
        """The rendered prompt, in which control texts of messages are marked.

        Raises:
            RequestError, RequestTypeError: As `encode_chat`.
        """
        plain = self._plain_chat(messages, variables)
        marks = Marks(self.control.ids, plain)
        return RenderedChat(self._shown(cast("dict[str, object]", marks.values)), marks.restored)

    def check_template(self) -> None:
        """Do nothing if there is a chat template.

        Raises:
            RequestError: There is none.
        """
        if not self.chat_template:
            raise RequestError("the model has no chat template", hint="send a plain prompt")

    def encode_rendered(self, chat: RenderedChat) -> list[int]:
        """Token ids of what `mark_chat` gave.

        Raises:
            RequestError: The tokenizer gives up on it.
        """
        if chat.restored:
            return self.control.encode_parts(chat.text, chat.restored)
        return self.encode(chat.text, add_special_tokens=False, parse_special=True)

    def _plain_chat(
        self, messages: Sequence[Message], variables: Mapping[str, object]
    ) -> dict[str, object]:
        plain = plain_values(messages, "messages")
        if not isinstance(plain, list) or not all(isinstance(one, dict) for one in plain):
            raise RequestTypeError(
                f"{shown(messages)} is no conversation",
                where="messages",
                hint='a list of {"role": …, "content": …}',
            )
        given = {name: plain_values(value, name) for name, value in variables.items()}
        known = [with_known_role(one, self.chat_template) for one in normalized(plain)]
        called = [with_arguments(one, lambda: self._arguments_form) for one in known]
        said = with_contents(called, self._content_form)
        if given.get(CONTINUE):
            return {**given, "add_generation_prompt": False, "messages": tagged(said)}
        return {**given, "messages": said}

    def _content_form(self, role: str) -> Form:
        """The form in which the template reads the contents of a role; found by trying."""
        role = role if role == "system" else "user"
        if role not in self._forms:
            render = lambda messages: self._render({"messages": messages})  # noqa: E731
            self._forms[role] = find_form(render, role)
        return self._forms[role]

    @cached_property
    def _arguments_form(self) -> ArgumentsForm:
        """The form in which the template reads arguments of calls; found by trying."""
        return find_arguments_form(
            lambda said: self._render({"messages": with_contents(said, self._content_form)})
        )

    def _shown(self, variables: Mapping[str, object]) -> str:
        """The rendered text, in which all messages are."""
        text = self._render(variables)
        shown = cut_at_tag(text) if variables.get(CONTINUE) else text
        messages = cast("Sequence[Message]", variables["messages"])
        render = lambda others: self._render({**variables, "messages": others})  # noqa: E731
        check_shown(text, messages, render)
        return shown

    def _render(self, variables: Mapping[str, object]) -> str:
        self.check_template()
        given = {name: value for name, value in variables.items() if name != CONTINUE}
        text = render_template(
            self.chat_template,
            {
                "add_generation_prompt": True,
                "tools": None,  # templates ask whether they are none, not whether they exist
                "documents": None,
                **self.special_tokens,
                **given,
            },
        )
        self._check_read(given)
        return text

    def unread(self, variables: Mapping[str, object]) -> list[str]:
        """Names of variables that say something, and that the chat template does not read."""
        said = {name for name, value in variables.items() if value not in (None, [], {})}
        return sorted(said - names_read(self.chat_template) - _OF_RENDERING)

    def _check_read(self, given: Mapping[str, object]) -> None:
        """Refuse what the model would never see; note what else changes nothing."""
        for name in self.unread(given):
            if name in _CONTENTS:
                raise RequestError(
                    f"the chat template reads no {name}: the model would not see them",
                    where=name,
                    hint="write them into the system message",
                )
            if (short := self._noted.first(name)) is not None:
                _LOG.warning("the chat template reads no variable %r", short)


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a ``tokenizer.json``.

    Raises:
        ArtifactError: The file is not a tokenizer.
    """
    try:
        with rust_errors():
            backend: tokenizers.Tokenizer = tokenizers.Tokenizer.from_buffer(read_file(path))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"not a tokenizer: {error}", where=str(path)) from error
    return backend
