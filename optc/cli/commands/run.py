"""``optc run``: continue prompts with an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.batch.answering import BatchFiles, answer_file
from optc.cli.batch.batch_line import LineReader
from optc.cli.chosen import chosen_json, chosen_text
from optc.cli.generating.prompts import PromptOptions, prompt_options, unread_variables
from optc.cli.generating.results import result_json, summary
from optc.cli.generating.sampling import (
    adapter_terms,
    check_shown,
    sampling_options,
    sampling_params,
)
from optc.cli.generating.thinking import Thinking
from optc.cli.logs import note
from optc.cli.options import add_options, stated
from optc.cli.output import json_option, print_json, print_warnings, visible
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc import Engine, RequestOutput, SamplingParams
    from optc.runtime.requests.prompts import Prompt

#: Settings of the engine that the command takes.
_SERVED = (
    "engine",
    "threads",
    "kv_memory",
    "resident_memory",
    "max_sequences",
    "speculate",
    "draft",
    "num_speculative_tokens",
    "generation_defaults",
)

_TOGETHER = "--input and --output go together, without prompts beside them"


@click.command("run", short_help="Continue prompts with an artifact.")
@click.argument("artifact", type=ARTIFACT)
@prompt_options
@sampling_options()
@click.option(
    "--parse-special",
    is_flag=True,
    help="Parse special tokens in prompts [they are plain text].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of each completion, which ends with what it has.",
)
@add_options(ServeSettings, *_SERVED)
@click.option(
    "--adapter",
    type=click.Path(path_type=Path),
    help="Folder of a LoRA adapter as PEFT saved it.",
)
@click.option(
    "--input",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Batch file to answer line by line (.jsonl); with --output.",
)
@click.option(
    "--output",
    "answers",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where answers to --input go; a run that was stopped goes on. Of a model that makes "
    "images: where they go (.png).",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Image generation: number of denoising steps [30].",
)
@click.option(
    "--guidance-scale",
    type=click.FloatRange(min=0, max=100),
    help="Image generation: classifier-free guidance scale [7.5].",
)
@click.option(
    "--source-language",
    metavar="CODE",
    help="Translation: language of the prompts, such as eng_Latn.",
)
@click.option(
    "--target-language",
    metavar="CODE",
    help="Translation: language to write, such as deu_Latn.",
)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Of a model of named tensors: inputs by name (.npz); --output FILE.npz keeps its outputs. "
    "Of a classifier: an image or a folder of them; of a model of speech: a sound (.wav).",
)
@json_option
def command(
    artifact: Path,
    source: Path | None,
    answers: Path | None,
    parse_special: bool,
    timeout: float | None,
    adapter: Path | None,
    inputs: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue each prompt with ARTIFACT; several prompts are batched.

    A single prompt streams to stdout; the figures follow on stderr. With --input and --output,
    each line of a file has its answer in another one.
    """
    if inputs is not None:
        from optc.cli.inputs.speech_run import run_speech, writes_speech
        from optc.cli.inputs.tensors_run import run_tensors

        if writes_speech(artifact):
            run_speech(artifact, inputs, answers, options, as_json)
        else:
            run_tensors(artifact, inputs, answers, options["engine"], as_json)
        return
    from optc.cli.inputs.by_face import run_by_face, take_own

    prompts, own = PromptOptions.taken(options), take_own(options)
    if source is not None and not prompts.empty:
        raise click.UsageError(_TOGETHER)
    if prompts.empty and source is None and answers is None:
        names = "'--prompt', '--prompt-file', '--messages' or '--input'"
        raise click.UsageError(f"Missing option {names}")
    if run_by_face(artifact, prompts, answers, own, options, as_json):
        return
    if (source is None) != (answers is None):
        raise click.UsageError(_TOGETHER)
    settings = ServeSettings(**stated(options, _SERVED))
    params = sampling_params(options)
    terms: dict[str, Any] = {"deadline_s": timeout, "parse_special": parse_special}
    if source is not None and answers is not None:
        files = BatchFiles(artifact, source, answers, adapter)
        answer_file(files, LineReader(prompts, params, settings), terms, as_json)
        return
    _continue(
        artifact, settings, prompts, params, adapter_folder=adapter, terms=terms, as_json=as_json
    )


def _continue(
    artifact: Path,
    settings: ServeSettings,
    prompts: PromptOptions,
    params: SamplingParams,
    *,
    adapter_folder: Path | None,
    terms: dict[str, Any],
    as_json: bool,
) -> None:
    """Continue prompts and print what comes."""
    from optc.runtime.loader import load

    warnings = check_shown(params, as_json=as_json)
    asked = prompts.read()
    with load(artifact, settings) as loaded:
        warnings += unread_variables(loaded, prompts.chat_template_kwargs)
        terms |= adapter_terms(loaded, adapter_folder)
        if as_json or len(asked) > 1 or params.completions > 1 or params.beam_width is not None:
            generated = loaded.generate([prompt for _, prompt in asked], params, **terms)
            outputs = [output.raise_for_error() for output in generated]
        else:
            outputs = [_stream(loaded, asked[0][1], params, terms)]
    if as_json:
        results = [result_json(output, params, settings) for output in outputs]
        whole = results[0] if len(results) == 1 else {"results": results}
        print_json("run", {**whole, "engine": chosen_json(loaded.info)["engine"]}, warnings)
        return
    print_warnings(warnings)
    for (label, _), output in zip(asked, outputs, strict=True):
        if len(asked) > 1:
            click.echo(f"── {label!r}")
        if len(asked) > 1 or params.completions > 1 or params.beam_width is not None:
            _print_texts(output, params)
        note(summary(output, params.structure is not None))
    if loaded.info is not None and loaded.info.rejected:
        note(visible(chosen_text(loaded.info)))


def _stream(
    engine: Engine, prompt: Prompt, params: SamplingParams, terms: dict[str, Any]
) -> RequestOutput:
    """Print the continuation as it comes; returns the finished result."""
    handle, thinking = engine.submit(prompt, params, **terms), Thinking()
    try:
        for delta in handle:
            thinking.show(delta)
            click.echo(delta.text, nl=False)
    finally:
        click.echo()
    return handle.result().raise_for_error()


def _print_texts(output: RequestOutput, params: SamplingParams) -> None:
    """The best beam, or all completions."""
    if params.beam_width is not None or params.n == 1:
        click.echo(output.text)
        return
    for completion in output.completions:
        click.echo(f"─ {completion.index + 1}\n{completion.text}")
