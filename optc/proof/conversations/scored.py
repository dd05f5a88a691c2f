"""`ScoredConversations`: the conversations that gates and ``optc eval`` score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np

from optc.errors import InputError
from optc.proof.conversations.chat import Chat
from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.read import read_lines
from optc.proof.conversations.sequences import Rendered, render
from optc.proof.conversations.sequences import Sequence as Tokens
from optc.proof.conversations.token_bytes import TokenBytes

#: The file of shipped conversations, and what it is called.
SHIPPED_FILE = "conversations.jsonl"
SHIPPED = "shipped conversations"
#: Fewest that are scored of a large model, whatever they cost.
FEWEST = 8


@dataclass(frozen=True)
class ScoredConversations:
    """Conversations as a model reads them.

    Attributes:
        sequences: What is scored.
        source: Where they come from: a file's name, or the shipped ones.
        convention: How they were chosen and rendered, one sentence.
        tokenizer_file: What gives ids their texts.
        left_out: How many the template does not take, by reason; only of shipped ones.
    """

    sequences: tuple[Tokens, ...]
    source: str
    convention: str
    tokenizer_file: Path | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Number of scored tokens: what the assistant says."""
        return sum(int(one.said.sum()) for one in self.sequences)


def shipped_conversations() -> list[Conversation]:
    """Those shipped with optc, written for it: chat, tools, refusals, JSON and code, in English,
    German and French."""
    content = (files("optc.proof.conversations") / SHIPPED_FILE).read_text("utf-8")
    found = read_lines(content, SHIPPED_FILE)
    return [one for one in found if isinstance(one, Conversation)]


def scored_conversations(
    given: Sequence[Conversation],
    chat: Chat,
    *,
    vocab_size: int,
    max_context: int,
    affordable: int,
    source: str,
    tokenizer_file: Path | None = None,
) -> ScoredConversations:
    """Render a user's conversations and find their decisions.

    Args:
        given: At least one.
        chat: Renders them.
        vocab_size: V of the model.
        max_context: Longest sequence of the engine, in tokens.
        affordable: Tokens that may be scored; of more, evenly spaced conversations are.
        source: Where they come from.
        tokenizer_file: What gives ids their texts.

    Raises:
        InputError: One cannot be rendered or is too long; says file and line.
    """
    rendered = [render(chat, one, max_context) for one in given]
    chosen = _affordable(rendered, affordable)
    sequences = _marked(chosen, vocab_size, source)
    text = _convention(sequences, len(chosen), len(given))
    return ScoredConversations(sequences, source, text, tokenizer_file)


def scored_shipped(
    chat: Chat,
    *,
    vocab_size: int,
    max_context: int,
    affordable: int,
    tokenizer_file: Path | None = None,
) -> ScoredConversations | str:
    """The shipped conversations as the template takes them, or why it takes none.

    Where the template has no place for tools, they are told in texts. What it does not take even
    so, or what is longer than the context, is left out and counted.

    Args: as of `scored_conversations`.

    Raises:
        InputError: The tokenizer gives ids that the model does not know.
    """
    given = shipped_conversations()
    taken: list[Rendered] = []
    reasons: Counter[str] = Counter()
    for one in given:
        try:
            taken.append(render(_chat_for(chat, one), one, max_context))
        except InputError as error:
            reasons[error.message] += 1
    if not taken:
        return f"none of the shipped conversations can be rendered: {reasons.most_common(1)[0][0]}"
    chosen = _affordable(taken, affordable)
    sequences = _marked(chosen, vocab_size, SHIPPED)
    text = _convention(sequences, len(chosen), len(given))
    told = sum(one.chat is not chat for one in chosen)
    if told:
        text += f"; tools of {told} are told in texts, since the template has no place for them"
    return ScoredConversations(sequences, SHIPPED, text, tokenizer_file, dict(reasons))


def _chat_for(chat: Chat, conversation: Conversation) -> Chat:
    """``chat``, or one that tells tools in texts where the template leaves them out."""
    try:
        chat.check_tools(conversation)
    except InputError:
        return chat.telling_tools()
    return chat


def _affordable(rendered: Sequence[Rendered], affordable: int) -> list[Rendered]:
    """Evenly spaced ones of no more than so many tokens, about; not fewer than `FEWEST`."""
    total = sum(one.tokens for one in rendered)
    count = min(len(rendered), max(FEWEST, len(rendered) * affordable // total))
    places = np.linspace(0, len(rendered) - 1, count).round().astype(int)
    return [rendered[place] for place in places.tolist()]


def _marked(rendered: Sequence[Rendered], vocab_size: int, source: str) -> tuple[Tokens, ...]:
    """All sequences, their decisions found."""
    table = TokenBytes(rendered[0].chat.tokenizer, vocab_size)
    largest = 0
    found: list[Tokens] = []
    for one in rendered:
        largest = max(largest, *(max(group[-1].ids) for group in one.groups))
        if largest >= vocab_size:
            raise InputError(
                f"the tokenizer gives id {largest}, the model knows {vocab_size} ids",
                where=source,
                hint="tokenizer and model do not belong together",
            )
        found += one.sequences(table)
    return tuple(found)


def _convention(sequences: Sequence[Tokens], chosen: int, given: int) -> str:
    answers = sum(int((np.diff(one.said.astype(int)) == 1).sum()) for one in sequences)
    said = sum(int(one.said.sum()) for one in sequences)
    decisions = sum(len(one.decisions) for one in sequences)
    return (
        f"{chosen} of {given} conversations, rendered by the model's chat template; {answers} "
        f"answers of {said} tokens and {decisions} decisions are scored, nothing else"
    )
