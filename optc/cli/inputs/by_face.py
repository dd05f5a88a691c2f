"""Runs of artifacts that do something else with prompts than to continue them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from optc.artifact.artifact import read_manifest
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.cli.generating.prompts import PromptOptions
from optc.cli.options import stated

#: Options of ``optc run`` that artifacts of one face alone have.
_OWN = {
    IMAGE_GENERATION_NAME: ("steps", "guidance_scale"),
    TEXT_TO_TEXT_NAME: ("source_language", "target_language"),
}
#: Of models that turn texts into texts: how their decoder writes, and how it is served.
_WRITING = ("beam_width", "length_penalty", "json_schema", "regex", "grammar", "choice")
_SERVING = ("threads", "speculate", "num_speculative_tokens")
#: Options that they take beside.
_TAKEN = {
    IMAGE_GENERATION_NAME: {"answers", "seed"},
    TEXT_TO_TEXT_NAME: {"max_tokens", *_WRITING, *_SERVING},
}
_ALL_TAKE = {"artifact", "engine", "as_json", "prompts", "prompt_file"}
_WORDS = {
    IMAGE_GENERATION_NAME: "models that make images",
    TEXT_TO_TEXT_NAME: "models that turn texts into texts",
}


def take_own(options: dict[str, Any]) -> dict[str, Any]:
    """Take those of `_OWN` out of a command's options: what is stated of them."""
    found = {name: options.pop(name) for names in _OWN.values() for name in names}
    return {name: value for name, value in found.items() if value is not None}


def run_by_face(
    artifact: Path,
    prompts: PromptOptions,
    output: Path | None,
    own: Mapping[str, Any],
    options: Mapping[str, Any],
    as_json: bool,
) -> bool:
    """Run an artifact whose face is one of these; False where it is another one.

    Args:
        artifact: Its folder.
        prompts: What is asked.
        output: Where images go.
        own: As of `take_own`.
        options: The command's others.
        as_json: Print one JSON object.

    Raises:
        UsageError: An option is stated that artifacts of this face do not have, or --output is
            missing.
    """
    face = read_manifest(artifact).task.face
    strange = [name for name in own if name not in _OWN.get(face, ())]
    if strange:
        other = next(face for face, names in _OWN.items() if strange[0] in names)
        flag = strange[0].replace("_", "-")
        raise click.UsageError(f"--{flag} is of {_WORDS[other]}")
    if face not in _OWN:
        return False
    _refuse_others(_ALL_TAKE | _TAKEN[face] | set(_OWN[face]), _WORDS[face])
    texts = [str(prompt) for _, prompt in prompts.read()]
    if face == TEXT_TO_TEXT_NAME:
        from optc.cli.inputs.text_to_text_run import run_text_to_text

        left = dict(options)
        served = {"engine": left["engine"], **stated(left, _SERVING)}
        if not left["choice"]:
            left["choice"] = None
        how = {**own, **stated(left, _WRITING), "max_tokens": left["max_tokens"]}
        run_text_to_text(artifact, texts, served, as_json, **how)
        return True
    if output is None:
        raise click.UsageError("Missing option '--output': an image goes there, as picture.png")
    from optc.cli.inputs.images_run import run_images

    seed = {} if options["seed"] is None else {"seed": options["seed"]}
    run_images(artifact, texts, output, options["engine"], as_json, **own, **seed)
    return True


def _refuse_others(taken: set[str], words: str) -> None:
    """Refuse options that are stated and not ``taken``.

    Raises:
        UsageError: One is stated.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        stated = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if stated and name not in taken:
            raise click.UsageError(f"{parameter.opts[-1]} is not of {words}")
