"""Requests as a server of a chat gets them: one long beginning, own questions, answers of all
lengths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.subjects import Subject
from optc.proof.conversations.tokens import token_stream
from optc.proof.reference.text import default_documents

#: Requests that are served together.
BATCH = 16


@dataclass(frozen=True)
class Request:
    """Token ids of a prompt, and how many tokens are wanted."""

    prompt: list[int]
    new: int


@dataclass(frozen=True)
class Workload:
    """Sizes of the requests.

    Attributes:
        shared: Tokens that all prompts begin with.
        own: Tokens of each prompt after them.
        shortest, longest: Answers have lengths between, few of them long (lognormal).
        requests: How many there are: whole batches.
        alone: How many of them are served one after the other, for the figure of one sequence.
    """

    shared: int = 256
    own: int = 64
    shortest: int = 16
    longest: int = 128
    requests: int = 2 * BATCH
    alone: int = 4

    def of(self, subject: Subject) -> list[Request]:
        """The requests, of the shipped text; the same ones every time."""
        config = json.loads((subject.folder / "config.json").read_text("utf-8"))
        stream = token_stream(
            default_documents(), subject.folder / "tokenizer.json",
            config.get("bos_token_id"), config.get("eos_token_id"),
        ).tolist()  # fmt: skip
        draw = np.random.default_rng(0)
        shared, rest = stream[: self.shared], stream[self.shared :]
        starts = np.linspace(0, len(rest) - self.own, self.requests).astype(int)
        lengths = np.clip(draw.lognormal(3.5, 0.7, self.requests), self.shortest, self.longest)
        return [
            Request(shared + rest[start : start + self.own], int(length))
            for start, length in zip(starts.tolist(), lengths, strict=True)
        ]


def batches(requests: list[Request]) -> Iterator[list[Request]]:
    """Static batches."""
    for start in range(0, len(requests), BATCH):
        yield requests[start : start + BATCH]
