"""Splits what a model thinks in a conversation from what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from optc.runtime.outputs import Completion, Delta, FinishReason
from optc.runtime.parsing.begun import prompt_begins_thought
from optc.runtime.parsing.formats import HARMONY_THOUGHTS, thought_format
from optc.runtime.parsing.pieces import Piece, Reader, Said, Thought
from optc.runtime.parsing.reading import Reading
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat
from optc.runtime.text.tokenizer import Tokenizer


def reading_of_thoughts(request: GenerationRequest, tokenizer: Tokenizer) -> Reading | None:
    """The reading that tells thoughts from the answer of a conversation; None where all is answer.

    A text that has a structure is that structure. Where gpt-oss may call tools, its channels are
    for who reads the calls.
    """
    chat = request.prompt
    if not isinstance(chat, Chat) or request.whole_text or request.params.structure is not None:
        return None
    thoughts = thought_format(tokenizer.chat_template)
    if thoughts is None or (thoughts is HARMONY_THOUGHTS and chat.variables.get("tools")):
        return None
    begun = prompt_begins_thought(chat.messages, chat.variables, tokenizer, thoughts)
    return Reading(thoughts=thoughts, in_thought=begun)


class Apart:
    """Splits what completions say from what they think: deltas as they come, and whole ones.

    Args:
        reader: Makes a reader of one message.
    """

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._reader = reader
        self._readers: dict[int, Reader] = {}

    def delta(self, delta: Delta) -> Delta:
        """A delta, the next one of its completion."""
        reader = self._readers.get(delta.index)
        if reader is None:
            reader = self._readers[delta.index] = self._reader()
        said, thought = _read(reader, delta.text, delta.finish_reason)
        return replace(delta, text=said, reasoning=thought)

    def completion(self, completion: Completion) -> Completion:
        """A whole one."""
        said, thought = _read(self._reader(), completion.text, completion.finish_reason)
        return replace(completion, text=said, reasoning=thought)


def _read(reader: Reader, text: str, ended: FinishReason | None) -> tuple[str, str]:
    """The answer and the thought in some more text."""
    pieces = reader.feed(text)
    if ended is not None:
        pieces += reader.finish(cut=ended != "stop")
    return _joined(pieces, Said), _joined(pieces, Thought)


def _joined(pieces: Iterable[Piece], kind: type[Said | Thought]) -> str:
    return "".join([one.text for one in pieces if isinstance(one, kind)])
