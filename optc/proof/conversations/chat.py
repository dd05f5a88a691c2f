"""`Chat`: conversations as token ids, rendered by a model's own chat template.

What an answer is, is found by rendering: the conversation up to an answer with the generation
prompt, which is what the model reads before it answers, and the same with the answer. Where both
part the answer begins; it goes up to the first token that ends a generation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optc.errors import InputError, RequestError
from optc.proof.conversations.conversation import Conversation, calls_of
from optc.proof.conversations.tools_in_text import tools_in_text
from optc.runtime.text.tokenizer import RenderedChat, Tokenizer

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Answer:
    """One answer of a conversation, with all that the model reads before it.

    Attributes:
        message: Which message it is.
        ids: What the model reads, the answer, and what the template writes behind it.
        begin: Where in ``ids`` the answer begins, at least 1.
        stop: One past its last token, which ends it.
        text: The rendered text of all ``ids``.
    """

    message: int
    ids: tuple[int, ...]
    begin: int
    stop: int
    text: str


class Chat:
    """Renders and encodes conversations for one model.

    Args:
        load: Gives the model's tokenizer with its chat template; called once it is needed.
        eos_token_ids: Tokens that end a generation.
        in_text: Tell tools and calls in texts where the template has no place for them.
    """

    def __init__(
        self, load: Callable[[], Tokenizer], eos_token_ids: Collection[int], in_text: bool = False
    ) -> None:
        self._load = load
        self.eos_token_ids = frozenset(eos_token_ids)
        self._in_text = in_text

    def telling_tools(self) -> Chat:
        """The same with ``in_text``."""
        return Chat(lambda: self.tokenizer, self.eos_token_ids, in_text=True)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._load()

    def encode(self, conversation: Conversation) -> list[int]:
        """Token ids of a whole conversation.

        Raises:
            InputError: The template does not take it; says file and line.
        """
        self.check_tools(conversation)
        whole = self.render(conversation, conversation.messages, generate=False)
        return self._ids(conversation, whole)

    def answer(
        self, conversation: Conversation, index: int, message: Mapping[str, Any] | None = None
    ) -> Answer:
        """The answer that is message ``index``, or another ``message`` in its place.

        Raises:
            InputError: The template does not take it, or changes what stands before it.
        """
        before = conversation.messages[:index]
        given = conversation.messages[index] if message is None else message
        prompt = self.render(conversation, before, generate=True)
        whole = self.render(conversation, [*before, given], generate=False)
        read, ids = (self._ids(conversation, text) for text in (prompt, whole))
        begin = _common(read, ids)
        joined = whole.unmarked.text.startswith(prompt.unmarked.text)
        if begin < len(read) and not joined:
            # The generation prompt has more than the answer's head, such as a beginning of thoughts
            stem = self.render(conversation, before, generate=False)
            if begin < len(self._ids(conversation, stem)):
                raise InputError(
                    f"the chat template changes what stands before message {index + 1} once that "
                    "is there: what the model reads before it answers cannot be told",
                    where=conversation.where,
                    hint="leave the conversation out",
                )
        stop = self._stop(ids, begin)
        if begin < 1 or stop <= begin:
            raise InputError(
                f"the chat template leaves message {index + 1} out", where=conversation.where
            )
        return Answer(index, tuple(ids), begin, stop, whole.unmarked.text)

    def check_tools(self, conversation: Conversation) -> None:
        """Check that the template renders the tools and calls of a conversation.

        Raises:
            InputError: It does not.
        """
        if not conversation.tools or self._in_text:
            return
        calls = [c for message in conversation.messages for c in calls_of(message)]
        unread = self.tokenizer.unread({"tools": conversation.tools})
        try:
            text = self.render(conversation, conversation.messages, generate=False).text
            bare = self.render(conversation, conversation.messages, generate=False, tools=False)
        except InputError as error:
            if not calls and not unread:
                raise
            problem = error.message
        else:
            called = all(call["function"]["name"] in bare.text for call in calls)
            if text != bare.text and called:
                return
            problem = "it leaves them out"
        raise InputError(
            f"the chat template cannot render tools: {problem}",
            where=conversation.where,
            hint="write the tools into the system message, and calls into contents",
        )

    def render(
        self,
        conversation: Conversation,
        messages: Messages,
        *,
        generate: bool,
        tools: bool = True,
    ) -> RenderedChat:
        """Messages of a conversation as text.

        Args:
            conversation: Has the tools.
            messages: What to render.
            generate: End with the generation prompt.
            tools: Give the template the tools.

        Raises:
            InputError: The template does not take them.
        """
        given: Sequence[Any] | None = list(conversation.tools) if tools else None
        if self._in_text and conversation.tools:
            messages, given = tools_in_text(messages, conversation.tools), None
        try:
            return self.tokenizer.mark_chat(
                list(messages), tools=given or None, add_generation_prompt=generate
            )
        except RequestError as error:
            raise InputError(
                error.message, where=conversation.where, hint="leave the conversation out"
            ) from error

    def _ids(self, conversation: Conversation, rendered: RenderedChat) -> list[int]:
        try:
            return self.tokenizer.encode_rendered(rendered)
        except RequestError as error:
            raise InputError(error.message, where=conversation.where, hint=error.hint) from error

    def _stop(self, ids: Sequence[int], begin: int) -> int:
        """One past the last token of the answer that begins at ``begin``: the first that ends a
        generation; where the template writes none, the last control token or the end."""
        places = range(begin, len(ids))
        ends = [at for at in places if ids[at] in self.eos_token_ids]
        if ends:
            return ends[0] + 1
        control = frozenset(self.tokenizer.control.ids.values())
        return max((at + 1 for at in places if ids[at] in control), default=len(ids))


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))
