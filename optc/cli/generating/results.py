"""The report of ``optc run`` on finished requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optc import RequestOutput, SamplingParams, ServeSettings


def result_json(
    output: RequestOutput, params: SamplingParams, settings: ServeSettings
) -> dict[str, Any]:
    """A result of ``optc run --json``; what only some requests have follows from the options."""
    result = _figures(output)
    metrics = output.metrics
    if settings.draft or settings.speculate not in (None, "off"):
        result["drafted_tokens"] = metrics.drafted_tokens
        result["accepted_tokens"] = metrics.accepted_tokens
    if params.structure is not None:
        result["forced_tokens"] = metrics.forced_tokens
    if output.logprobs is not None:
        result["logprobs"] = [position.to_json() for position in output.logprobs]
    if output.prompt_logprobs is not None:
        result["prompt_logprobs"] = output.prompt_logprobs.to_json()
    if params.beam_width is not None:
        result["beams"] = _completions(output, "cumulative_logprob")
    elif params.n > 1:
        result["completions"] = _completions(output, "finish_reason")
    return result


def summary(output: RequestOutput, structured: bool) -> str:
    """One line of figures for reading."""
    metrics = output.metrics
    text = f"{output.prompt_tokens} prompt tokens, {len(output.token_ids)} new ones"
    if metrics.ttft_s is not None:
        text += f", first after {metrics.ttft_s * 1e3:.1f} ms"
    if metrics.tpot_s:
        text += f", then {metrics.tpot_s * 1e3:.2f} ms each ({1 / metrics.tpot_s:.0f} tokens/s)"
    if metrics.drafted_tokens:
        text += f", {metrics.accepted_tokens} of {metrics.drafted_tokens} drafts accepted"
    if metrics.forced_tokens:
        text += f", {metrics.forced_tokens} forced by the structure"
    text = f"{text}; ended by {output.finish_reason}"
    if structured and output.finish_reason == "length":
        text += ", before the structure was whole: give it a larger --max-tokens"
    return text


def _figures(output: RequestOutput) -> dict[str, Any]:
    metrics = output.metrics
    thought = {"reasoning": output.reasoning} if output.reasoning else {}
    return {
        "text": output.text,
        **thought,
        "token_ids": list(output.token_ids),
        "prompt_tokens": output.prompt_tokens,
        "output_tokens": len(output.token_ids),  # of the text, not of all completions
        "finish_reason": output.finish_reason,
        "ttft_ms": _milliseconds(metrics.ttft_s),
        "tpot_ms": _milliseconds(metrics.tpot_s),
    }


def _completions(output: RequestOutput, *more: str) -> list[dict[str, Any]]:
    return [
        {"text": one.text, "token_ids": list(one.token_ids)}
        | ({"reasoning": one.reasoning} if one.reasoning else {})
        | {name: getattr(one, name) for name in more}
        for one in output.completions
    ]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
