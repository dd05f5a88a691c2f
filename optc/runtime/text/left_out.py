"""Messages that a chat template leaves out: the model would not see them, and nobody would notice.

Templates know the roles that their model was trained on. Most write nothing for a message of any
other role, such as a tool's result, or for a system message behind the first one; and nothing for
the calls of a message where they know no tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from optc.errors import RequestError

Messages = Sequence[Mapping[str, Any]]
#: What refusals begin with.
LEAVES_OUT = "the chat template leaves out"


def check_shown(text: str, messages: Messages, render: Callable[[Messages], str]) -> None:
    """Refuse what is missing in a prompt whatever it says: another rendering tells, in which each
    text that is not found has a word more at its ends.

    What the assistant said is not looked for: templates leave out what it thought, and texts beside
    calls.

    Args:
        text: The rendered prompt.
        messages: Its messages, as the template was given them.
        render: Renders others; its RequestError says that the template refuses them.

    Raises:
        RequestError: The template leaves a message out.
    """
    doubted = [at for at, said in _said(messages) if not all(part in text for part in said)]
    if not doubted:
        return
    others = [_other(one, at) if at in doubted else one for at, one in enumerate(messages)]
    try:
        shown = render(others)
    except RequestError:  # it reads what they say, so it does not leave them out
        return
    for at in doubted:
        if _word(at) not in shown:
            raise _left_out(messages[at], at)


def with_known_role(message: dict[str, Any], template: str) -> dict[str, Any]:
    """The message of a developer as the system's, where the template knows no developers."""
    if message.get("role") == "developer" and "developer" not in template:
        return {**message, "role": "system"}
    return message


def _said(messages: Messages) -> Iterator[tuple[int, list[str]]]:
    """The texts of each message that a prompt has to show."""
    for at, message in enumerate(messages):
        if message.get("role") == "assistant":
            # with a mark that no prompt shows: short names stand in other words
            yield at, [_word(at) for name in map(_name, _calls(message)) if name]
        else:
            yield at, [part.strip() for part in _parts(message.get("content"))]


def _parts(content: object) -> list[str]:
    """The texts of a content."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return [text for text in texts if isinstance(text, str)]
    return [content] if isinstance(content, str) else []


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _name(call: object) -> str:
    """The name of the function that is called; empty where there is none."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def _word(at: int) -> str:
    """A word that no text has, of letters, which no template changes."""
    return f"qzx{at}xzq"


def _other(message: Mapping[str, Any], at: int) -> dict[str, Any]:
    """The message with a word in its texts, or for the names of what it calls."""
    word = _word(at)
    if message.get("role") == "assistant":
        return {**message, "tool_calls": [_renamed(call, word) for call in _calls(message)]}
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": _within(content, word)}
    return {**message, "content": [_part(part, word) for part in content]}


def _part(part: Any, word: str) -> Any:
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return part
    return {**part, "text": _within(part["text"], word)}


def _within(text: str, word: str) -> str:
    """The text with the word at both ends: a template may write one of its lines alone."""
    return f"{word}{text}{word}"


def _renamed(call: Any, word: str) -> Any:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "function": {**function, "name": word}}
    return {**call, "name": word}


def _left_out(message: Mapping[str, Any], at: int) -> RequestError:
    role = str(message.get("role"))[:40]
    part = "the calls of message" if role == "assistant" else "message"
    return RequestError(
        f"{LEAVES_OUT} {part} {at + 1}, of the role {role!r}: the model would not see it",
        where="messages",
        hint="write it into a message of the user or, first of all, of the system",
    )
