"""`Score`: how likely a continuation is behind a context, and how both become tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optc.errors import RequestError
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams

#: What a request that is scored asks for.
SCORED = SamplingParams(max_tokens=0, temperature=0, prompt_logprobs=0)


@dataclass(frozen=True)
class Score:
    """The likelihood of a continuation under the model's own distribution (natural logarithms).

    Attributes:
        logprob: Its log-probability: the sum of ``token_logprobs``.
        is_greedy: Greedy decoding behind the context would write just this.
        token_ids: Its tokens.
        token_logprobs: Log-probability of each behind all before it.
    """

    logprob: float
    is_greedy: bool
    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]

    @classmethod
    def of(cls, output: RequestOutput) -> Score:
        """The score of a request of `SCORED`.

        Raises:
            RequestError: It failed, or ended before its prompt was computed.
        """
        found = output.raise_for_error().prompt_logprobs
        if found is None:
            raise RequestError(
                f"not scored: ended by {output.finish_reason}",
                where="score",
                hint="give it a later deadline",
            )
        tokens = tuple(output.prompt_token_ids[found.first :])
        return cls(found.total, found.is_greedy, tokens, tuple(found.logprobs.tolist()))


def encode_pair(
    context: str, continuation: str, encode: Callable[[str], Sequence[int]]
) -> tuple[list[int], int]:
    """Token ids of a text, and how many of them are the context's.

    Both are encoded together, as the model would read them, without the blanks at the context's
    end, which tokenizers put before the next word. The context has as many tokens as it has alone
    (as in EleutherAI's Language Model Evaluation Harness).

    Args:
        context: What comes before.
        continuation: What is scored.
        encode: Of one text.
    """
    return list(encode(context + continuation)), len(encode(context.rstrip()))


def joined(
    context: Sequence[int],
    continuation: Sequence[int] | str,
    encode: Callable[[str], Sequence[int]],
) -> tuple[list[int], int]:
    """Token ids behind those of a context, and how many are the context's.

    Args:
        context: Token ids.
        continuation: Token ids, or a text that is encoded by itself.
        encode: Of one text, with nothing put before it.
    """
    behind = encode(continuation) if isinstance(continuation, str) else continuation
    return [*context, *behind], len(context)
