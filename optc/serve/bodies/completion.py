"""The body of ``/v1/completions``."""

from __future__ import annotations

from optc.serve.bodies.base import SamplingBody, Tokens


class CompletionBody(SamplingBody):
    """Texts or token ids to continue, one or several."""

    prompt: str | list[str] | Tokens | list[Tokens]
    logprobs: int | None = None
    echo: bool | None = None
