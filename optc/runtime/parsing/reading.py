"""`Reading`: how the messages of one request are to be read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optc.runtime.parsing.formats import HARMONY_THOUGHTS, CallFormat, ThoughtFormat
from optc.runtime.parsing.harmony import HarmonyReader
from optc.runtime.parsing.message_reader import MessageReader
from optc.runtime.parsing.pieces import PlainReader, Reader
from optc.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Reading:
    """The format that messages are read by.

    Attributes:
        calls: Format of calls; None has none.
        thoughts: Format of thoughts; None has none.
        tools: Schemas of the arguments by the names of the functions.
        most_calls: Calls that count, the first ones; None are all.
        shows_thoughts: Give what is thought.
        in_thought: The prompt has begun a thought.
    """

    calls: CallFormat | None = None
    thoughts: ThoughtFormat | None = None
    tools: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    most_calls: int | None = None
    shows_thoughts: bool = True
    in_thought: bool = False

    @property
    def begun(self) -> ThoughtFormat | None:
        """The format of the thought that the prompt has begun; None if it has not."""
        return self.thoughts if self.in_thought else None

    def reader(self) -> Reader:
        """A reader of one message."""
        if self.calls is None and self.thoughts is None:
            return PlainReader()
        if self.thoughts is HARMONY_THOUGHTS:
            return HarmonyReader(self.most_calls)
        return MessageReader(
            self.calls,
            self.thoughts,
            self.tools,
            in_thought=self.in_thought,
            most_calls=self.most_calls,
        )

    def thought_tokens(self, tokens: Sequence[int], tokenizer: Tokenizer) -> int:
        """The number of tokens of a message that are a thought, its marks included."""
        thoughts = self.thoughts
        if thoughts is None:
            return 0

        def text(count: int) -> str:
            return tokenizer.decode(tokens[:count], skip_special_tokens=False)

        whole = text(len(tokens))
        begins = whole.lstrip().startswith(thoughts.begin)
        if not begins and not self.in_thought:
            return 0
        if thoughts.end not in whole:
            return len(tokens)
        return bisect_left(range(len(tokens)), True, key=lambda count: thoughts.end in text(count))

    def needs_special_tokens(self, tokenizer: Tokenizer) -> bool:
        """True if special tokens tell calls and thoughts from other text."""
        added = tokenizer.backend.get_added_tokens_decoder().values()
        special = {one.content for one in added if one.special}
        marks: set[str] = set()
        if self.calls is not None:
            marks |= {*self.calls.begins, *self.calls.ends}
        if self.thoughts is not None:
            marks |= {self.thoughts.begin, self.thoughts.end}
        return bool(marks & special)
