"""Finds the points of an answer at which the model acts.

What else it might do is rendered by the template: the same conversation with another tool, another
value, with a call instead of a text. Where the texts part is the point; the tokens with which each
of them may go on there (`TokenBytes.beginnings`) are its options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from optc.errors import InputError
from optc.proof.conversations.chat import Answer, Chat
from optc.proof.conversations.conversation import Conversation, calls_of
from optc.proof.conversations.decision import Decision, Kind, Option
from optc.proof.conversations.schema_values import choices, with_value
from optc.proof.conversations.token_bytes import TokenBytes

#: Most tools that are looked at.
MOST_TOOLS = 16
#: How ``json.dumps`` may have laid out an answer.
_LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"indent": 4},
)


def find_decisions(
    chat: Chat, table: TokenBytes, conversation: Conversation, answer: Answer
) -> list[Decision]:
    """The decisions of one answer, in order."""
    finder = _Finder(chat, table, conversation, answer)
    found = [*finder.beginning(), *finder.calls(), *finder.values(), *finder.end()]
    return sorted(found, key=lambda decision: decision.place)


class _Finder:
    """Looks at one answer."""

    def __init__(
        self, chat: Chat, table: TokenBytes, conversation: Conversation, answer: Answer
    ) -> None:
        self._chat, self._table = chat, table
        self._conversation, self._answer = conversation, answer
        self._message = conversation.messages[answer.message]
        self._text, said = answer.text.encode(), table.of(answer.ids[answer.begin :])
        #: Bytes of the rendered text before the answer; None where tokens do not give the text.
        self._before = len(self._text) - len(said) if self._text.endswith(said) else None

    def beginning(self) -> Iterator[Decision]:
        """The decisions at an answer's beginning: its first token, and to call a tool or not."""
        calls, place = calls_of(self._message), self._answer.begin
        if not calls:
            yield Decision("begin", place, "", (), -1)
        names = self._conversation.tool_names[:MOST_TOOLS]
        if not names or (calls and self._message["content"]):
            return
        texts = (self._variant({"content": "", "tool_calls": [_call(name)]}) for name in names)
        tokens = {t for text in texts if text for t in self._table.beginnings(text)}
        called = self._answer.ids[place] in tokens
        if tokens and called == bool(calls):
            options = Option("call", tuple(sorted(tokens))), Option("answer", ())
            yield Decision("call", place, "", options, 0 if calls else 1)

    def calls(self) -> Iterator[Decision]:
        """The choices of a tool."""
        calls = calls_of(self._message)
        for index, call in enumerate(calls):
            own = call["function"]["name"]
            others = [name for name in self._conversation.tool_names if name != own]
            variants = {
                name: self._with_call(index, {**call["function"], "name": name})
                for name in others[: MOST_TOOLS - 1]
            }
            yield from self._parted("tool", "", own, variants)

    def values(self) -> Iterator[Decision]:
        """The choices of a value where a schema lists some."""
        for index, call in enumerate(calls_of(self._message)):
            function = call["function"]
            schema = self._parameters(function["name"])
            for choice in choices(schema, function["arguments"]):
                variants = {
                    _shown(other): self._with_call(
                        index,
                        {
                            **function,
                            "arguments": with_value(function["arguments"], choice.path, other),
                        },
                    )
                    for other in choice.others
                }
                about = f"{function['name']}.{choice.name}"
                own = _shown(_at(function["arguments"], choice.path))
                yield from self._parted("value", about, own, variants)
        yield from self._values_of_text()

    def end(self) -> Iterator[Decision]:
        """That it ends."""
        last, ends = self._answer.stop - 1, self._chat.eos_token_ids
        if self._answer.ids[last] in ends:
            options = Option("end", tuple(sorted(ends))), Option("go on", ())
            yield Decision("end", last, "", options, 0)

    def _values_of_text(self) -> Iterator[Decision]:
        schema, content = self._conversation.schema, self._message["content"]
        if not schema or calls_of(self._message) or not isinstance(content, str):
            return
        value, layout = _parsed(content)
        if layout is None:
            return
        for choice in choices(schema, value):
            variants = {
                _shown(other): {
                    **self._message,
                    "content": _dumped(with_value(value, choice.path, other), layout),
                }
                for other in choice.others
            }
            own = _shown(_at(value, choice.path))
            yield from self._parted("value", choice.name, own, variants)

    def _parameters(self, tool: str) -> Mapping[str, Any]:
        functions = (one["function"] for one in self._conversation.tools)
        found: Mapping[str, Any] = next(
            (one.get("parameters", {}) for one in functions if one["name"] == tool), {}
        )
        return found

    def _with_call(self, index: int, function: Mapping[str, Any]) -> dict[str, Any]:
        """The message with another call at ``index``."""
        calls = list(calls_of(self._message))
        calls[index] = {**calls[index], "function": dict(function)}
        return {**self._message, "tool_calls": calls}

    def _variant(self, message: Mapping[str, Any]) -> bytes | None:
        """The text with another message; None where the template renders no such
        answer in this place."""
        before = self._conversation.messages[: self._answer.message]
        given = {"role": "assistant", **message}
        try:
            other = self._chat.render(self._conversation, [*before, given], generate=False)
        except InputError:
            return None
        text, start = other.unmarked.text.encode(), self._before
        if start is None or text[:start] != self._text[:start]:
            return None
        return text[start:]

    def _parted(
        self, kind: Kind, about: str, own: str, variants: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[Decision]:
        """The points at which the answer parts from its variants, by their names."""
        texts = {name: self._variant(message) for name, message in variants.items()}
        others = {name: text for name, text in texts.items() if text is not None}
        said, at = self._text[self._before :], 0
        for place in range(self._answer.begin, self._answer.stop):
            if not others:
                return
            taken = self._answer.ids[place]
            token = self._table.of([taken])
            parted = {n: t for n, t in others.items() if not t[at:].startswith(token)}
            if parted:
                others = {name: text for name, text in others.items() if name not in parted}
                stay = [said[at:], *(text[at:] for text in others.values())]
                name, left = "|".join([own, *others]), {n: t[at:] for n, t in parted.items()}
                options = (self._staying(name, taken, stay, left), *self._leaving(stay, left))
                if len(options) > 1:
                    yield Decision(kind, place, about, options, 0)
            at += len(token)

    def _staying(
        self, name: str, taken: int, stay: Sequence[bytes], parted: Mapping[str, bytes]
    ) -> Option:
        """Tokens of the answer: its own, and others that no other option begins with."""
        tokens = self._begin(stay) - self._begin(parted.values())
        return Option(name, tuple(sorted(tokens | {taken})))

    def _leaving(self, stay: Sequence[bytes], parted: Mapping[str, bytes]) -> list[Option]:
        """The other options. Texts that a tokenizer cuts alike, with the longest token, are one. Of
        tokens with which several options may begin, each keeps its longest alone."""
        together: dict[int, list[str]] = {}
        for name, text in parted.items():
            if found := self._table.beginnings(text):
                together.setdefault(found[-1], []).append(name)
        options = []
        for longest, names in together.items():
            others = [*stay, *(text for name, text in parted.items() if name not in names)]
            tokens = self._begin(parted[name] for name in names) - self._begin(others)
            options.append(Option("|".join(names), tuple(sorted(tokens | {longest}))))
        return options

    def _begin(self, texts: Iterable[bytes]) -> set[int]:
        """Tokens that one of the texts may begin with."""
        return {token for text in texts for token in self._table.beginnings(text)}


def _call(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": {}}}


def _parsed(content: str) -> tuple[Any, dict[str, Any] | None]:
    """The JSON of an answer, and how it is laid out; None where it is none, or laid out by hand."""
    try:
        value = json.loads(content)
    except ValueError:
        return None, None
    layouts = (one for one in _LAYOUTS if _dumped(value, one) == content)
    return value, next(layouts, None)


def _dumped(value: object, layout: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, **layout)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _at(whole: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        whole = whole[key]
    return whole
