"""`Asked`: what a request wants of the runtime, and how its answer is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from optc.runtime.parsing.reading import Reading
from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.models import ServedModel

#: Where a stream says how many tokens it took: nowhere, in its last chunk, or in each.
Usage = Literal["none", "last", "each"]


@dataclass(frozen=True)
class Asker:
    """The client that asks.

    Attributes:
        salt: Of its own: requests of others share no cached prefixes with it.
        request_id: Of the request, for the log and the answer.
    """

    salt: str = ""
    request_id: str = ""


@dataclass(frozen=True)
class Asked:
    """A request that has been read.

    Attributes:
        model: Who answers.
        requests: To the runtime, one for each prompt.
        n: Texts for each of them.
        stream: Answer by a stream.
        usage: Where the stream says how many tokens it took.
        token_ids: Give the tokens beside their text.
        unknown: Names of fields that nobody knows.
        reading: How messages are read.
        echo: Texts begin with their prompts.
        grammar_of: The field that a grammar was made of, such as ``tools``; empty without one.
    """

    model: ServedModel
    requests: tuple[GenerationRequest, ...]
    n: int
    stream: bool = False
    usage: Usage = "none"
    token_ids: bool = False
    unknown: tuple[str, ...] = ()
    reading: Reading = field(default_factory=Reading)
    grammar_of: str = ""
    echo: bool = False
