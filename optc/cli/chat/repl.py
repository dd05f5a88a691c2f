"""The loop of ``optc chat``: read a message, show the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from optc.cli.chat.chat_commands import EndError, run_command
from optc.cli.chat.conversation import Conversation
from optc.cli.chat.reading import read_message
from optc.cli.generating.thinking import Thinking
from optc.cli.logs import note
from optc.cli.output import one_line, visible
from optc.errors import EngineError, OptcError

if TYPE_CHECKING:
    from optc import RequestOutput


def converse(conversation: Conversation, line: Callable[[str], str | None]) -> int:
    """Answer messages until their end. Answers go to stdout, all else to stderr.

    An interrupt ends an answer and not the loop; neither does a message or a command that is wrong.

    Args:
        conversation: Where it begins.
        line: Reads a line after a prompt; None at the end.

    Returns:
        The exit code of the first message or command that was wrong; 0 where none was.

    Raises:
        EngineError: The engine failed.
    """
    code = 0
    while True:
        try:
            text = read_message(line)
            if text is None:
                return code
            _take(conversation, text)
        except EndError:
            return code
        except KeyboardInterrupt:
            click.echo("\n(/exit or Ctrl-D ends)", err=True)
        except EngineError:
            raise
        except OptcError as error:
            click.echo(f"error: {one_line(error.render())}", err=True)
            code = code or error.exit_code


def _take(conversation: Conversation, text: str) -> None:
    if text.startswith("/") and not text.startswith("//"):
        click.echo(visible(run_command(conversation, text)), err=True)
    elif text.strip():
        said = text[1:] if text.startswith("//") else text
        try:
            output = conversation.ask(said, _show, Thinking().show)
        finally:
            click.echo()
        note(_figures(output))


def _show(text: str) -> None:
    click.echo(visible(text), nl=False)


def _figures(output: RequestOutput) -> str:
    """A line below an answer."""
    parts = [f"{output.output_tokens} tokens"]
    if tpot := output.metrics.tpot_s:
        parts.append(f"{1 / tpot:.1f} tokens/s")
    if output.finish_reason != "stop":
        parts.append(
            {"length": "cut at its limit", "cancelled": "stopped"}.get(
                output.finish_reason, output.finish_reason
            )
        )
    return f"({', '.join(parts)})"
