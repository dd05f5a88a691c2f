"""Messages as chat templates expect them: what OpenAI's clients send, in the form that a template
reads.

transformers drops keys that are null and gives reasoning under each of its names; so does this.
Beyond that, a content may be a text or a list of parts, and most templates read only one of both:
they would print the other as a Python value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from optc.errors import RequestError

#: How a template reads contents: texts alone, lists of parts alone, or both.
Form = Literal["texts", "parts", "both"]
#: A character that no template writes itself.
PROBE = "\ue000"
_REASONING = ("reasoning_content", "thinking", "reasoning")
#: The variable that asks for the last message to be continued.
CONTINUE = "continue_final_message"
#: transformers' own mark: a template that strips contents takes the blank away.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
#: A part that was printed as a value of Python or JSON.
_PRINTED = re.compile(r"""['"](type|text)['"] *:""")
_MEDIA = re.compile(r"image|audio|video|file")
_PART = {"type": "text", "text": PROBE}


def normalized(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without null values, with what was reasoned under the names that templates read,
    and with what was said when an answer was refused as a content.

    Args:
        messages: Plain copies.

    Raises:
        RequestError: A message is a sound.
    """
    found = []
    for message in messages:
        stated = {key: value for key, value in message.items() if value is not None}
        if "audio" in stated:  # what a model said before, by its id
            raise _refused("audio")
        if "content" not in stated and isinstance(stated.get("refusal"), str):
            stated["content"] = stated["refusal"]
        thought = next((stated[key] for key in _REASONING if key in stated), None)
        if thought is not None:
            stated = {"thinking": thought, **stated, "reasoning_content": thought}
        found.append(stated)
    return found


def find_form(render: Callable[[list[dict[str, Any]]], str], role: str) -> Form:
    """The form in which a template reads the contents of a role.

    Args:
        render: Renders messages; its RequestError says that the template refuses them.
        role: ``user`` or ``system``; others are read like the user's.
    """
    texts = _shows(render, role, PROBE)
    if _shows(render, role, [_PART]):
        return "both" if texts else "parts"
    return "texts"


def with_contents(
    messages: list[dict[str, Any]], form_of: Callable[[str], Form]
) -> list[dict[str, Any]]:
    """The messages with contents in the form that the template reads.

    Args:
        messages: Plain copies.
        form_of: By role.

    Raises:
        RequestError: A part is no text where only texts are read, or it is of a medium.
    """
    return [_with_content(one, form_of) for one in messages]


def tagged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with a mark at the end of the last one, which is to be continued.

    Raises:
        RequestError: It has no text.
    """
    *others, last = messages or [{}]
    content = last.get("content")
    if isinstance(content, str):
        return [*others, {**last, "content": content + _TAG}]
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        part = content[-1]
        if isinstance(part.get("text"), str):
            marked = {**part, "text": part["text"] + _TAG}
            return [*others, {**last, "content": [*content[:-1], marked]}]
    raise RequestError("the last message has no text to continue", where=CONTINUE)


def cut_at_tag(text: str) -> str:
    """A rendered conversation up to the mark of `tagged`, as transformers cuts it.

    Raises:
        RequestError: The template has left the message out.
    """
    before, tag, _ = text.rpartition(_TAG.strip())
    if not tag:
        raise RequestError("the chat template leaves the last message out", where=CONTINUE)
    kept = text[len(before) :].startswith(_TAG)
    return before if kept else before.rstrip()  # the template strips contents


def _with_content(message: dict[str, Any], form_of: Callable[[str], Form]) -> dict[str, Any]:
    content, role = message.get("content"), str(message.get("role"))
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, dict) else part for part in content]
        for kind in kinds:
            if isinstance(kind, str) and _MEDIA.search(kind):
                raise _refused(kind)
        if form_of(role) == "texts":
            return {**message, "content": "\n".join(map(_text, content))}
    elif isinstance(content, str) and form_of(role) == "parts":
        return {**message, "content": [{"type": "text", "text": content}]}
    elif isinstance(content, dict) and role != "tool":  # whose results may be objects
        raise RequestError("an object as a content", where="messages", hint="a text, or a list")
    return message


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise _refused(part.get("type") if isinstance(part, dict) else part)
    return text


def _refused(kind: object) -> RequestError:
    return RequestError(
        f"a part of type {kind!r} in a content", where="messages", hint="only text is taken"
    )


def _shows(render: Callable[[list[dict[str, Any]]], str], role: str, content: object) -> bool:
    """True if the template writes a content's text, and not how it is stored."""
    said = {"role": role, "content": content}
    user = {"role": "user", "content": content}
    try:
        text = render([said] if role == "user" else [said, user])
    except RequestError:
        return False
    return PROBE in text and not _PRINTED.search(text)
