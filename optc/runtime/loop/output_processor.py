"""From drawn tokens to a request's progress: text, stops, and whether it ends."""

from __future__ import annotations

from collections.abc import Sequence

from optc.errors import RequestError
from optc.runtime.outputs import Delta, FinishReason
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Drawn, NoToken
from optc.runtime.scoring.token_logprobs import TokenLogprobs


def advance(request: Request, drawn: Sequence[Drawn], eos: frozenset[int], now: float) -> Delta:
    """Append tokens up to the one that ends the request.

    Args:
        request: Gets the tokens, their log-probabilities and times, and its error; its
            ``finish_reason`` is left to the caller.
        drawn: At least one. The last one completes the request's grammar if that has ended.
        eos: The model's end tokens.
        now: When they were drawn.
    """
    text = ""
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] = []
    reason: FinishReason | None = None
    constraint = request.constraint
    for left, sampled in enumerate(drawn, 1 - len(drawn)):
        if isinstance(sampled, NoToken):
            text, reason = text + _fail(request, sampled), "error"
        else:
            request.append(sampled.token)
            request.metrics.token_times_s.append(now)
            tokens.append(sampled.token)
            if sampled.logprobs is not None:
                logprobs.append(sampled.logprobs)
            complete = not left and constraint is not None and constraint.ended
            more, reason = _read(request, sampled.token, eos, complete)
            text += more
        if reason is not None:
            break
    request.logprobs += logprobs
    return Delta(request.index, text, tuple(tokens), tuple(logprobs), reason)


def _read(
    request: Request, token: int, eos: frozenset[int], complete: bool
) -> tuple[str, FinishReason | None]:
    """New text of the request and whether its new token, which may complete a grammar, ends it."""
    stream, params = request.stream, request.params
    ends = token in params.stop_token_ids or (token in eos and not params.ignore_eos)
    text = stream.add(token) if stream and not ends else ""
    if ends or complete or (stream is not None and stream.stopped):
        return text + (stream.finish() if stream else ""), "stop"
    if request.num_tokens == request.max_length:
        text += stream.finish() if stream else ""
        return text, "stop" if stream and stream.stopped else "length"
    return text, None


def _fail(request: Request, why: NoToken) -> str:
    """Set the error of a request that cannot go on; returns the rest of its text."""
    hints = {
        NoToken.NAN: "the weights or the engine are broken for this input",
        NoToken.NOTHING_ALLOWED: "its grammar cannot go on from here, or logit_bias forbids it",
    }
    message, hint = why.value, hints[why]
    if request.constraint is not None and request.constraint.error:
        message, hint = f"its grammar fails: {request.constraint.error}", "simplify the grammar"
    request.error = RequestError(message, where=f"output token {request.num_output}", hint=hint)
    return request.stream.finish() if request.stream else ""
