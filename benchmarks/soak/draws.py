"""Random draws of a soak: how the engine is loaded, what is asked of it, and how."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optc
from optc.runtime.executable.executable import StepInterface

#: Longest prompt and output together, where the engine's context is not shorter: every setting's
#: KV pools hold a request of so many tokens.
_LONGEST = 224
#: Documents that prompts begin like; each is lines of one kind.
FAMILIES = 12
#: Most completions of one prompt, or beams.
_MOST_COMPLETIONS = 4
_STRUCTURES: tuple[dict[str, Any], ...] = (
    {"regex": r"[a-z_]{1,12}\([a-z, ]{0,24}\):"},
    {"choice": ("return self", "return None", "raise ValueError")},
    {"json_schema": '{"type": "object", "properties": {"a": {"type": "integer"}}}'},
)
_FILTERS: tuple[dict[str, Any], ...] = (
    {"top_p": 0.9},
    {"top_k": 20},
    {"min_p": 0.05},
    {"repetition_penalty": 1.2},
    {"frequency_penalty": 0.3, "logprobs": 2},
    {"stop": ("\n\n", "return")},
)


@dataclass(frozen=True, eq=False)
class Job:
    """A request whose output is the same whenever and however it is served."""

    prompt: tuple[int, ...]
    params: optc.SamplingParams
    adapter: str | None = None


@dataclass(frozen=True)
class Manner:
    """The way a request is handed in, which must not change what comes of it but where it ends.

    Attributes:
        terms: Keywords of `Engine.submit`.
        stream: Its output is read as it comes.
        cancel_after: It is cancelled after so many pieces of output; None is never.
        abandon: After so many pieces nobody has a name for it any more, and nobody reads it; None
            is never.
        loop: An abandoned one was read in an event loop, whose task ended.
    """

    terms: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    cancel_after: int | None = None
    abandon: int | None = None
    loop: bool = False


def draft_of(kind: str, draft: Path | None) -> dict[str, Any]:
    """Keywords of `optc.load` for a way to draft that needs another artifact."""
    return {"draft": draft} if draft is not None and "draft" in kind else {}


class Draws:
    """Draws for one artifact; the same seed draws the same.

    Args:
        spec: The target's engine.
        kinds: How its tokens can be drafted.
        encode: Tokens of a text.
        spill_folder: Where blocks may be spilled to.
        draft: Artifact of a model that drafts; None is the artifact's own, if it has one.
        adapters: Names of those that requests may ask for.
    """

    def __init__(
        self,
        spec: StepInterface,
        kinds: tuple[str, ...],
        encode: Callable[[str], list[int]],
        spill_folder: str,
        draft: Path | None = None,
        adapters: tuple[str, ...] = (),
    ) -> None:
        self._spec = spec
        self._kinds = kinds
        self._draft = draft
        self._longest = min(_LONGEST, spec.max_context)
        self._lines = [
            tuple(encode(f"def f{i}(x):\n    return x + {i}\n")) for i in range(FAMILIES)
        ]
        self._spill_folder = spill_folder
        self._adapters = adapters

    def settings(self, rng: random.Random) -> dict[str, Any]:
        """Keywords of `optc.load`."""
        kind = rng.choice(("off", *self._kinds))
        if kind == "draft" and "ngram" in self._kinds:
            kind = rng.choice(("draft", "ngram+draft"))
        size = self._spec.block_multiple * rng.choice((1, 1, 2, 3))
        rows = self._spec.max_rows
        tokens = rng.choice((self._longest + 4 * size, 640, 1024, 4096))
        bytes_per_token = self._spec.kv_bytes_per_token * (2 if kind != "off" else 1)
        return draft_of(kind, self._draft) | {
            "kv_memory": (tokens + size) * bytes_per_token,
            "block_size": size,
            "prefix_cache": rng.random() < 0.9,
            "prefix_eviction": rng.choice(("lru", "lfu")),
            "prefix_spill": rng.choice(
                (
                    None,
                    "256KiB",
                    "8MiB",
                    f"{self._spill_folder}:1MiB",
                    f"{self._spill_folder}:32MiB",
                )
            ),
            "token_budget": rng.choice((None, 16, 64, min(rows, 200))),
            "max_sequences": rng.choice((None, None, _MOST_COMPLETIONS, 16)),
            "prefill_chunk": rng.choice((None, None, 8, 48)),
            "speculate": kind,
            "num_speculative_tokens": None if kind == "off" else rng.choice((None, 1, 4, 7)),
        }

    def job(self, rng: random.Random) -> Job:
        """A request: mostly of lines that others begin with, too."""
        line = rng.choice(self._lines)
        prompt = line * rng.randint(1, 12)
        if rng.random() < 0.3:
            prompt += tuple(rng.randrange(self._spec.vocab_size) for _ in range(rng.randint(1, 20)))
        output = rng.choice((1, 8, 40, 100))
        adapter = rng.choice((None, None, *self._adapters))
        return Job(prompt[: self._longest - output], self._params(rng, output), adapter)

    def _params(self, rng: random.Random, output: int) -> optc.SamplingParams:
        common: dict[str, Any] = {"max_tokens": output, "ignore_eos": rng.random() < 0.5}
        if rng.random() < 0.1:
            width = rng.randint(2, _MOST_COMPLETIONS)
            return optc.SamplingParams(beam_width=width, temperature=0, **common)
        common["temperature"] = rng.choice((0.0, 0.0, 0.7, 1.0))
        common["seed"] = rng.randrange(1 << 32)
        common["n"] = rng.choice((1, 1, 1, 1, 2, _MOST_COMPLETIONS))
        if rng.random() < 0.2:
            common |= rng.choice(_STRUCTURES)
        elif rng.random() < 0.3:
            common |= rng.choice(_FILTERS)
        return optc.SamplingParams(**common)

    def manner(self, rng: random.Random) -> Manner:
        """Draw the way a request is handed in."""
        terms: dict[str, Any] = {"salt": rng.choice(("", "", "a", "b"))}
        if rng.random() < 0.3:
            terms["priority"] = rng.randint(-1, 3)
        if rng.random() < 0.05:
            terms["deadline_s"] = rng.choice((1e-4, 0.02, 0.1))
        cancel = rng.randint(0, 20) if rng.random() < 0.08 else None
        if rng.random() < 0.06:
            return Manner(terms, abandon=rng.randint(0, 8), loop=rng.random() < 0.5)
        return Manner(terms, rng.random() < 0.3, cancel)
