"""Conversations as sequences of tokens in which answers and decisions are marked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.proof.conversations.chat import Answer, Chat
from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.decision import Decision
from optc.proof.conversations.find_decisions import find_decisions
from optc.proof.conversations.token_bytes import TokenBytes
from optc.runtime.executable.executable import Int32

#: Most answers of a conversation: each is rendered with all that stands before it.
MOST_ANSWERS = 256


@dataclass(frozen=True)
class Sequence:
    """A sequence that a model reads and says in one go.

    Attributes:
        ids: [N] token ids.
        said: [N] which of them the assistant says, the tokens that end its turns included.
        decisions: By place.
        where: File and line of the conversation.
    """

    ids: Int32
    said: npt.NDArray[np.bool_]
    decisions: tuple[Decision, ...]
    where: str

    @property
    def rows(self) -> Int32:
        """Rows of logits that predict what the assistant says."""
        return np.flatnonzero(self.said).astype(np.int32) - 1


@dataclass(frozen=True)
class Rendered:
    """A conversation as a template renders it.

    Attributes:
        chat: Renders it.
        conversation: What is rendered.
        groups: Answers that are read in one go: all, unless the template tells earlier turns
            otherwise once others follow, as templates do that drop thoughts.
    """

    chat: Chat
    conversation: Conversation
    groups: tuple[tuple[Answer, ...], ...]

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return sum(group[-1].stop for group in self.groups)

    def sequences(self, table: TokenBytes) -> list[Sequence]:
        """Its sequences with their decisions, which ``table`` finds."""
        return [self._sequence(table, group) for group in self.groups]

    def _sequence(self, table: TokenBytes, answers: tuple[Answer, ...]) -> Sequence:
        whole = answers[-1]
        said = np.zeros(whole.stop, np.bool_)
        for answer in answers:
            said[answer.begin : answer.stop] = True
        found = (find_decisions(self.chat, table, self.conversation, one) for one in answers)
        ids = np.asarray(whole.ids[: whole.stop], np.int32)
        return Sequence(ids, said, tuple(chain(*found)), self.conversation.where)


def render(chat: Chat, conversation: Conversation, context: int) -> Rendered:
    """Render the answers of a conversation. Each is rendered with what stands before it, so that
    time grows with the square of their number: it has a bound, and the first that does not fit
    ends it.

    Args:
        chat: Renders them.
        conversation: What is rendered.
        context: Most tokens of a sequence.

    Raises:
        InputError: The template does not take it, it is longer than the context, or it has more
            answers than `MOST_ANSWERS`; says file and line.
    """
    if len(conversation.answers) > MOST_ANSWERS:
        raise InputError(
            f"the conversation has {len(conversation.answers)} answers, more than {MOST_ANSWERS}",
            where=conversation.where,
            hint="make several of it",
        )
    chat.check_tools(conversation)
    groups: list[tuple[Answer, ...]] = []
    for index in conversation.answers:
        answer = chat.answer(conversation, index)
        if answer.stop > context:
            raise InputError(
                f"longer than the context of {context} tokens",
                where=conversation.where,
                hint="shorten it, or raise --max-context",
            )
        if groups and _continues(answer, groups[-1][-1]):
            groups[-1] += (answer,)
        else:
            groups.append((answer,))
    return Rendered(chat, conversation, tuple(groups))


def _continues(answer: Answer, last: Answer) -> bool:
    return answer.begin >= last.stop and answer.ids[: last.stop] == last.ids[: last.stop]
