"""The results of a request: deltas while it streams, and the finished result."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from optc.errors import RequestError
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
from optc.runtime.scoring.token_logprobs import TokenLogprobs

#: Why a completion ended: an end token, stop token or stop string; its length limit; its
#: deadline; the caller; or an error that concerns this request alone.
FinishReason = Literal["stop", "length", "deadline", "cancelled", "error"]
#: Characters of a text in its result's ``repr``.
_SHOWN = 60


@dataclass(frozen=True)
class Delta:
    """The addition of one step to one completion of a request.

    Attributes:
        index: Which of the request's n completions.
        text: New text; may be empty while a character or a possible stop string is incomplete.
        token_ids: New tokens.
        logprobs: One entry for each new token if asked for, else empty.
        finish_reason: Set on the completion's last delta.
        reasoning: New text that the model thinks, of a conversation (`optc.Chat`).
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    reasoning: str = ""

    def joined(self, *later: Delta) -> Delta:
        """This one and later ones of the same completion in one."""
        every = (self, *later)
        return Delta(
            self.index,
            "".join([one.text for one in every]),
            tuple(chain.from_iterable([one.token_ids for one in every])),
            tuple(chain.from_iterable([one.logprobs for one in every])),
            every[-1].finish_reason,
            "".join([one.reasoning for one in every]),
        )


@dataclass(frozen=True)
class Completion:
    """One finished continuation of a prompt.

    Attributes:
        index: Which of the request's n completions.
        text: The text, without end tokens and without the stop string; of a conversation without
            what the model thinks.
        token_ids: Every generated token, the end or stop token included.
        finish_reason: Why it ended.
        logprobs: One entry a token if asked for, else None.
        metrics: Its latencies.
        error: Set if ``finish_reason`` is ``error``.
        cumulative_logprob: Log-probability of all its tokens, of a beam search; else None.
        reasoning: The text that the model thinks before its answer, of a conversation
            (`optc.Chat`); else empty.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] | None
    metrics: RequestMetrics
    error: RequestError | None = None
    cumulative_logprob: float | None = None
    reasoning: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it: ``logprobs``, ``error`` and ``cumulative_logprob`` may be null."""
        return {
            "index": self.index,
            "text": self.text,
            "reasoning": self.reasoning,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "logprobs": None if self.logprobs is None else [p.to_json() for p in self.logprobs],
            "metrics": self.metrics.to_json(),
            "error": None if self.error is None else self.error.to_json(),
            "cumulative_logprob": self.cumulative_logprob,
        }


@dataclass(frozen=True)
class RequestOutput:
    """The result of one request; the fields of its first completion are its own.

    Attributes:
        prompt_token_ids: The prompt as the model saw it; empty if it could not be encoded.
        completions: The n completions, in order of their index.
        prompt_logprobs: An entry a token of the prompt if asked for, None for its first one; None
            where they were not asked for, or the request ended before all were known.
    """

    prompt_token_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    prompt_logprobs: PromptLogprobs | None = None

    @property
    def text(self) -> str:
        """Text of the first completion."""
        return self.completions[0].text

    @property
    def reasoning(self) -> str:
        """The text that the first completion thinks."""
        return self.completions[0].reasoning

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Tokens of the first completion."""
        return self.completions[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first completion ended."""
        return self.completions[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        """Log-probabilities of the first completion, if asked for."""
        return self.completions[0].logprobs

    @property
    def metrics(self) -> RequestMetrics:
        """Latencies of the first completion."""
        return self.completions[0].metrics

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return len(self.prompt_token_ids)

    @property
    def output_tokens(self) -> int:
        """Tokens generated over all completions."""
        return sum(len(completion.token_ids) for completion in self.completions)

    @property
    def error(self) -> RequestError | None:
        """The error of the first completion that failed, else None."""
        return next((c.error for c in self.completions if c.error is not None), None)

    def raise_for_error(self) -> RequestOutput:
        """This output, or its error.

        Raises:
            RequestError: The request was invalid or failed.
        """
        if self.error is not None:
            raise self.error
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it: ``prompt_token_ids``, ``prompt_logprobs`` (null where there are none)
        and ``completions`` with their ``metrics``."""
        scored = self.prompt_logprobs
        return {
            "prompt_token_ids": list(self.prompt_token_ids),
            "prompt_logprobs": None if scored is None else scored.to_json(),
            "completions": [completion.to_json() for completion in self.completions],
        }

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        several = len(self.completions)
        more = f" and {several - 1} more" if several > 1 else ""
        return (
            f"<optc.RequestOutput {text!r}{more}: {self.prompt_tokens} prompt tokens, "
            f"{self.output_tokens} new ones, ended by {self.finish_reason}>"
        )

    def _repr_html_(self) -> str:
        from optc.system.notebook.tables import html_table  # only notebooks need it

        rows = [
            (one.text, len(one.token_ids), one.finish_reason, times["ttft_ms"], times["tpot_ms"])
            for one in self.completions
            for times in [one.metrics.to_json()]
        ]
        columns = ("text", "tokens", "ended by", "ttft_ms", "tpot_ms")
        return html_table(f"{self.prompt_tokens} prompt tokens", columns, rows)
