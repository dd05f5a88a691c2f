"""``optc run``: continue prompts with an artifact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.chosen import chosen_json, chosen_text
from optc.cli.options import add_options
from optc.cli.output import json_option, print_json, visible
from optc.cli.structured import STRUCTURED, structured_options, structured_parameters
from optc.cli.valid_text import valid_text
from optc.errors import InputError
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc import Engine, RequestOutput, SamplingParams

#: What the adapter of --adapter is called.
_ADAPTER = "adapter"
#: Settings of the engine that the command takes.
_SERVED = (
    "engine",
    "threads",
    "kv_memory",
    "max_sequences",
    "speculate",
    "draft",
    "num_speculative_tokens",
)


@click.command("run", short_help="Continue prompts with an artifact.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    required=True,
    callback=valid_text,
    help="Text, or - for stdin.",
)
@click.option("--max-tokens", type=int, default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--top-k", type=int, default=0, help="0 keeps all tokens.")
@click.option("--min-p", type=float, default=0.0, show_default=True)
@click.option("--repetition-penalty", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, help="Same seed, same text.")
@click.option(
    "--beam-width",
    type=click.IntRange(min=1),
    help="Beam search with so many beams; the best text is printed, --json gives all [sample].",
)
@click.option(
    "--length-penalty",
    type=float,
    default=1.0,
    show_default=True,
    help="Beams of n tokens are ranked by log-probability / n ** this.",
)
@click.option(
    "--parse-special",
    is_flag=True,
    help="Take texts of control tokens in prompts for these tokens [they are text].",
)
@click.option("--stop", multiple=True, callback=valid_text, help="Text that ends the continuation.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End each continuation after this time, with what it has.",
)
@add_options(ServeSettings, *_SERVED)
@click.option(
    "--adapter",
    type=click.Path(path_type=Path),
    help="Folder of a LoRA adapter as PEFT saved it.",
)
@structured_options
@json_option
def command(
    artifact: Path,
    prompts: tuple[str, ...],
    parse_special: bool,
    timeout: float | None,
    adapter: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue each --prompt with ARTIFACT; several prompts are batched.

    A single prompt streams to stdout; the figures follow on stderr.
    """
    from optc import SamplingParams, load

    texts = [sys.stdin.read() if prompt == "-" else prompt for prompt in prompts]
    if prompts.count("-") > 1:
        raise InputError("stdin can be read once", where="--prompt -")
    structure = structured_parameters(**{name: options.pop(name) for name in STRUCTURED})
    settings = ServeSettings(**{name: options.pop(name) for name in _SERVED})
    params = SamplingParams(**options, **structure)
    with load(artifact, settings) as loaded:
        terms: dict[str, Any] = {"deadline_s": timeout, "parse_special": parse_special}
        if adapter is not None:
            loaded.load_adapter(_ADAPTER, adapter)
            terms["adapter"] = _ADAPTER
        if as_json or len(texts) > 1 or params.beam_width is not None:
            generated = loaded.generate(texts, params, **terms)
            outputs = [output.raise_for_error() for output in generated]
        else:
            outputs = [_stream(loaded, texts[0], params, terms)]
    if as_json:
        results = [_figures(output) for output in outputs]
        if settings.draft or settings.speculate not in (None, "off"):
            results = [r | _drafts(output) for r, output in zip(results, outputs, strict=True)]
        if params.structure is not None:
            results = [
                r | {"forced_tokens": output.metrics.forced_tokens}
                for r, output in zip(results, outputs, strict=True)
            ]
        if params.beam_width is not None:
            results = [r | _beams(output) for r, output in zip(results, outputs, strict=True)]
        whole = results[0] if len(results) == 1 else {"results": results}
        print_json("run", {**whole, "engine": chosen_json(loaded.info)["engine"]})
        return
    for text, output in zip(texts, outputs, strict=True):
        if len(texts) > 1:
            click.echo(f"── {text!r}\n{output.text}")
        elif params.beam_width is not None:  # is known at its end only
            click.echo(output.text)
        click.echo(_summary(output, params.structure is not None), err=True)
    if loaded.info is not None and loaded.info.rejected:
        click.echo(visible(chosen_text(loaded.info)), err=True)


def _stream(
    engine: Engine, text: str, params: SamplingParams, terms: dict[str, Any]
) -> RequestOutput:
    """Print the continuation as it comes; returns the finished result."""
    handle = engine.submit(text, params, **terms)
    try:
        for delta in handle:
            click.echo(delta.text, nl=False)
    finally:
        click.echo()
    return handle.result().raise_for_error()


def _figures(output: RequestOutput) -> dict[str, Any]:
    metrics = output.metrics
    return {
        "text": output.text,
        "token_ids": list(output.token_ids),
        "prompt_tokens": output.prompt_tokens,
        "output_tokens": len(output.token_ids),  # of the text, not of all beams
        "finish_reason": output.finish_reason,
        "ttft_ms": _milliseconds(metrics.ttft_s),
        "tpot_ms": _milliseconds(metrics.tpot_s),
    }


def _drafts(output: RequestOutput) -> dict[str, int]:
    metrics = output.metrics
    return {
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
    }


def _beams(output: RequestOutput) -> dict[str, Any]:
    return {
        "beams": [
            {
                "text": beam.text,
                "token_ids": list(beam.token_ids),
                "cumulative_logprob": beam.cumulative_logprob,
            }
            for beam in output.completions
        ]
    }


def _summary(output: RequestOutput, structured: bool) -> str:
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


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
