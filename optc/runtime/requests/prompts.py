"""The beginning of a request: a text, token ids, or a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Chat:
    """A conversation, which the model's chat template turns into a prompt.

    Attributes:
        messages: ``{"role": …, "content": …}`` in order.
        variables: Further variables of the template, such as ``tools``.
    """

    messages: Sequence[Mapping[str, Any]]
    variables: Mapping[str, object] = field(default_factory=dict)


#: A text, which the tokenizer encodes (BOS included), token ids, which are taken as they are, or a
#: conversation.
Prompt = str | Sequence[int] | Chat
