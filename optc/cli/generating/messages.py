"""Conversations in files: a JSON list of messages, or an object whose ``messages`` it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.options.user_text import read_user_text
from optc.system.safe_json import JSONError, parse_json
from optc.system.whole_file import write_whole

Messages = list[dict[str, Any]]
_FORM = 'a JSON list of {"role": …, "content": …}, or an object whose "messages" it is'


def parse_messages(text: str, where: str) -> Messages:
    """The messages in a text.

    Raises:
        InputError: It holds no conversation.
    """
    try:
        value = parse_json(text)
    except JSONError as error:
        raise InputError(f"not JSON: {error}", where=where, hint=_FORM) from error
    return check_messages(value.get("messages") if isinstance(value, dict) else value, where)


def check_messages(value: object, where: str) -> Messages:
    """A value that is a list of messages.

    Raises:
        InputError: It is none.
    """
    if not isinstance(value, list) or not value or not all(map(_is_message, value)):
        raise InputError("not a conversation", where=where, hint=_FORM)
    return value


def _is_message(value: object) -> bool:
    """True if it says something, or calls tools."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    return "content" in value or "tool_calls" in value


def with_system(messages: Messages, system: str | None) -> Messages:
    """A conversation that begins with what the system says, instead of what it said; unchanged
    where that is None."""
    if system is None:
        return messages
    rest = messages[1:] if messages and messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system}, *rest]


def read_messages(path: Path, where: str = "--messages") -> Messages:
    """The conversation in a file that the option or command ``where`` names.

    Raises:
        InputError: It cannot be read, or holds none.
    """
    return parse_messages(read_user_text(path, where), f"{where} {path}")


def write_messages(path: Path, messages: Messages) -> None:
    """Write a conversation, as a whole or not at all.

    Raises:
        InputError: It cannot be written, or the file holds something else.
    """
    if path.exists():
        try:
            read_messages(path, "/save")
        except InputError as error:
            raise InputError(
                "it holds something that is not a conversation",
                where=str(path),
                hint="give another file",
            ) from error
    text = json.dumps({"messages": messages}, ensure_ascii=False, indent=2) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be written: {reason}", where=str(path)) from error
