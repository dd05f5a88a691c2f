"""The text of the gates: windows, and conversations if the model has a template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optc.proof.conversations.conversation import Conversation, no_template
from optc.proof.conversations.load import artifact_chat
from optc.proof.conversations.read import read_texts
from optc.proof.conversations.scored import (
    ScoredConversations,
    scored_conversations,
    scored_shipped,
)
from optc.proof.conversations.sequences import render
from optc.proof.reference.text import WINDOW_TOKENS, EvalWindows, eval_windows, windows_for

if TYPE_CHECKING:
    from optc.artifact.manifest import TokenizerEntry

_ABSENT = "the model has no chat template"


@dataclass(frozen=True)
class ModelLimits:
    """The limits of a model that the text depends on.

    Attributes:
        vocab_size: Tokens that it has logits for.
        max_context: Longest sequence of the engine, in tokens.
        parameters: Number of weights; of large models less is scored.
    """

    vocab_size: int
    max_context: int
    parameters: int


@dataclass(frozen=True)
class JudgedText:
    """Windows and conversations.

    Attributes:
        windows: Of the texts; where there are none, of the conversations.
        conversations: None where there are none.
        absent: Why there are none.
        prose: Whether the windows are of texts. Else the divergence is measured on answers.
    """

    windows: EvalWindows
    conversations: ScoredConversations | None
    absent: str
    prose: bool


def judged_text(
    limits: ModelLimits, artifact: Path, tokenizer: TokenizerEntry | None, text: Path | None
) -> JudgedText:
    """The text that gates and ``optc eval`` score: a user's documents, and what is shipped in the
    place of those that he gives none of, texts or conversations.

    Args:
        limits: Of the engine.
        artifact: Its folder, finished or not.
        tokenizer: The artifact's; None gives random ids.
        text: ``.jsonl`` or plain text; None is what is shipped.

    Raises:
        InputError: The text is unusable, or a conversation cannot be rendered.
        UnavailableError: llguidance is not installed, and there are conversations.
    """
    chat = artifact_chat(artifact, tokenizer)
    windows = eval_windows(
        vocab_size=limits.vocab_size,
        max_context=limits.max_context,
        parameters=limits.parameters,
        tokenizer_file=None if tokenizer is None else artifact / tokenizer.files[0],
        bos=None if tokenizer is None else tokenizer.bos_token_id,
        eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
        text_file=text,
        chat=chat,
    )
    given, prose = _given(text)
    if chat is None:
        return JudgedText(windows, None, _ABSENT, prose=True)
    affordable = windows_for(limits.parameters) * WINDOW_TOKENS
    found = (
        scored_conversations(
            given,
            chat,
            vocab_size=limits.vocab_size,
            max_context=limits.max_context,
            affordable=affordable,
            source="" if text is None else text.name,
            tokenizer_file=windows.tokenizer_file,
        )
        if given
        else scored_shipped(
            chat,
            vocab_size=limits.vocab_size,
            max_context=limits.max_context,
            affordable=affordable,
            tokenizer_file=windows.tokenizer_file,
        )
    )
    if isinstance(found, str):
        return JudgedText(windows, None, found, prose=True)
    return JudgedText(windows, found, "", prose)


def check_conversations(
    artifact: Path, tokenizer: TokenizerEntry | None, text: Path | None, max_context: int
) -> None:
    """Check, before the long stages, that a user's conversations can be rendered.

    Raises:
        InputError: One cannot, or is longer than the context; says file and line.
    """
    given, _ = _given(text)
    if not given:
        return
    chat = artifact_chat(artifact, tokenizer)
    if chat is None:
        raise no_template(given[0])
    for one in given:
        render(chat, one, max_context)


def _given(text: Path | None) -> tuple[list[Conversation], bool]:
    """A user's conversations, and whether there are texts to score."""
    if text is None:
        return [], True
    documents = read_texts(text)
    given = [one for one in documents if isinstance(one, Conversation)]
    return given, len(given) < len(documents)
