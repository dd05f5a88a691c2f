"""Reads texts whose documents may be conversations."""

from __future__ import annotations

from pathlib import Path

from optc.errors import InputError
from optc.proof.conversations.conversation import Conversation, read_conversation
from optc.system.options.user_text import read_user_text
from optc.system.safe_json import JSONError, parse_json

#: A text, or a conversation.
Document = str | Conversation
_HINT = 'one JSON object a line: {"name": "a.py", "text": "…"} or {"messages": […], "tools": […]}'


def read_texts(path: Path) -> list[Document]:
    """The documents of a ``.jsonl`` file (a line has ``text``, or ``messages`` and maybe
    ``tools``) or of one plain text.

    Raises:
        InputError: The file cannot be read, is not UTF-8, or a line is no document; says which.
    """
    content = read_user_text(path, what="the text")
    if path.suffix == ".jsonl":
        return read_lines(content, str(path))
    if not content.strip():
        raise InputError("the text is empty", where=str(path))
    return [content]


def read_lines(content: str, where: str) -> list[Document]:
    """The documents of the lines of a ``.jsonl`` file.

    Raises:
        InputError: A line is no document, or there is none.
    """
    # Of lines as JSON has them: texts may hold other characters that end lines.
    lines = enumerate(content.split("\n"), start=1)
    found = [_document(line, f"{where}:{number}") for number, line in lines if line.strip()]
    if not any(isinstance(one, Conversation) or one.strip() for one in found):
        raise InputError("the text is empty", where=where)
    return found


def _document(line: str, where: str) -> Document:
    try:
        value = parse_json(line)
    except JSONError as error:
        raise InputError(f"not a document: {error}", where=where, hint=_HINT) from error
    if not isinstance(value, dict):
        raise InputError("not a document", where=where, hint=_HINT)
    if "text" in value and "messages" in value:
        raise InputError("a document has text or messages, not both", where=where)
    if "messages" in value:
        return read_conversation(value, where)
    if "text" not in value:
        raise InputError("not a document: neither text nor messages", where=where, hint=_HINT)
    text = value["text"]
    if not isinstance(text, str):
        raise InputError("text is not a string", where=where, hint=_HINT)
    return text
