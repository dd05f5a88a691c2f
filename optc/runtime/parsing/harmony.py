"""`HarmonyReader`: messages of gpt-oss, which go to channels.

https://github.com/openai/harmony, docs/format.md: ``analysis`` is thought, what goes to
``functions.f`` calls f, all else is said.
"""

from __future__ import annotations

import re

from optc.runtime.parsing.characters import Reading
from optc.runtime.parsing.fed import FedReader
from optc.runtime.parsing.pieces import CallArguments, CallBegun, Said, Thought

MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([\w.:-]+)")
_FUNCTIONS = "functions."
#: How a head begins; other text has none.
_HEADS = "< "


class HarmonyReader(FedReader):
    """Reads what the model writes behind ``<|start|>assistant``.

    Args:
        most_calls: Calls that count, the first ones; None are all.
    """

    def __init__(self, most_calls: int | None = None) -> None:
        super().__init__()
        self._most = most_calls
        self._count = 0
        self._start(self._messages())

    def _messages(self) -> Reading[None]:
        chars = self._chars
        yield from chars.fetch()
        if chars.now and chars.now not in _HEADS:  # a grammar let the model write this alone
            yield from self._body(None, "final")
        while chars.now:
            head = []
            while chars.now and not (yield from chars.match((MESSAGE,))):
                head.append(chars.now)
                yield from chars.advance()
            if not chars.now:
                self._ended_in("".join(head))
                return
            text = "".join(head)
            channel, recipient = _CHANNEL.search(text), _RECIPIENT.search(text)
            yield from self._body(
                recipient[1] if recipient else None, channel[1] if channel else "final"
            )

    def _ended_in(self, head: str) -> None:
        """The text has ended within a head, or is none of this form."""
        if head.strip() and "<|" not in head:
            self._pieces.add(Said(head))

    def _body(self, recipient: str | None, channel: str) -> Reading[None]:
        """Pass a message and its end."""
        chars, index = self._chars, None
        if recipient is not None and recipient.startswith(_FUNCTIONS):
            index = self._begin(recipient.removeprefix(_FUNCTIONS))
        thinks = channel == "analysis" or (recipient is not None and index is None)
        while chars.now and not (yield from chars.match(_ENDS)):
            if index is None:
                self._pieces.add(Thought(chars.now) if thinks else Said(chars.now))
            elif self._most is None or index < self._most:
                self._pieces.add(CallArguments(index, chars.now))
            yield from chars.advance()

    def _begin(self, name: str) -> int:
        self._count += 1
        if self._most is None or self._count <= self._most:
            self._pieces.add(CallBegun(self._count - 1, name))
        return self._count - 1
