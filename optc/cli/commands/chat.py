"""``optc chat``: talk with an artifact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.generating.messages import read_messages, with_system
from optc.cli.generating.prompts import template_option, unread_variables
from optc.cli.generating.sampling import (
    CHAT_DEFAULTS,
    CHAT_NAMES,
    adapter_terms,
    sampling_options,
    sampling_params,
)
from optc.cli.options import add_options, stated
from optc.cli.output import print_warnings, visible
from optc.cli.valid_text import valid_text
from optc.errors import UnsupportedError
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc import Engine

#: Settings of the engine that the command takes.
_SERVED = (
    "engine",
    "threads",
    "kv_memory",
    "resident_memory",
    "speculate",
    "draft",
    "num_speculative_tokens",
    "generation_defaults",
)


@click.command("chat", short_help="Talk with an artifact.")
@click.argument("artifact", type=ARTIFACT)
@click.option("--system", callback=valid_text, help="System prompt.")
@click.option(
    "--messages",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Continue the conversation in this file, as /save writes it.",
)
@template_option
@sampling_options(CHAT_DEFAULTS, CHAT_NAMES)
@add_options(ServeSettings, *_SERVED)
@click.option(
    "--adapter",
    type=click.Path(path_type=Path),
    help="Folder of a LoRA adapter as PEFT saved it.",
)
def command(
    artifact: Path,
    system: str | None,
    messages: Path | None,
    adapter: Path | None,
    **options: Any,
) -> None:
    """Talk with ARTIFACT, by its model's chat template.

    A message is a line, several that end with a backslash, or what stands between two lines of
    \"\"\". Ctrl-C stops an answer; /help lists commands; /exit or Ctrl-D ends.
    """
    from optc.cli.chat.conversation import Conversation
    from optc.cli.chat.reading import typed_line
    from optc.cli.chat.repl import converse
    from optc.runtime.loader import load

    settings = ServeSettings(**stated(options, _SERVED))
    params = sampling_params(options, CHAT_DEFAULTS)
    variables = options.pop("chat_template_kwargs")
    said = [] if messages is None else read_messages(messages)
    begun = with_system(said, system)
    with load(artifact, settings) as engine:
        _check_template(engine, artifact)
        print_warnings(unread_variables(engine, variables))
        terms = adapter_terms(engine, adapter)
        if sys.stdin.isatty():
            length = f"{engine.max_context} tokens of context"
            click.echo(visible(f"{engine.info}, {length}; /help lists commands"), err=True)
        code = converse(Conversation(engine, params, terms, variables, begun), typed_line)
    if not sys.stdin.isatty():  # who types has seen what was wrong
        click.get_current_context().exit(code)


def _check_template(engine: Engine, artifact: Path) -> None:
    if engine.tokenizer is None or not engine.tokenizer.chat_template:
        raise UnsupportedError(
            "the model has no chat template",
            where=str(artifact),
            hint="optc run continues plain prompts",
        )
