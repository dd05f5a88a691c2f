"""Entry point of ``optc``: finds the command, turns errors into messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from optc.cli.output import JSON_FLAG, print_error
from optc.errors import InputError, OptcError

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

#: Commands in the order of ``optc --help``, and the modules that hold them.
COMMANDS = {
    "compile": "compile",
    "plan": "plan",
    "run": "run",
    "bench": "bench",
    "tune": "tune",
    "eval": "evaluate",
    "inspect": "inspect",
    "verify": "verify",
    "recipes": "recipes",
    "passes": "passes",
    "backends": "backends",
    "targets": "targets",
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"optc.cli.commands.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"optc {version('optc')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """Compile language models into artifacts, prove them against the source, and run them."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0 done, 2 wrong usage or bad input, 3 target or dependency not available, 4 gate failed,
    70 internal error (with its traceback), 130 interrupted.
    """
    as_json = JSON_FLAG in arguments
    try:
        outcome = cli.main(list(arguments), prog_name="optc", standalone_mode=False)
    except click.UsageError as error:
        return print_error(_usage_error(error), as_json)
    except click.ClickException as error:
        return print_error(InputError(error.format_message()), as_json)
    except OptcError as error:
        return print_error(error, as_json)
    except click.Abort:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; without this Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything else is a bug
        traceback.print_exc()
        return print_error(_internal_error(error), as_json)
    return outcome if isinstance(outcome, int) else 0


def main() -> NoReturn:
    """Console script ``optc``."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))


def _terminate(number: int, frame: FrameType | None) -> None:
    """Unwind the stack on SIGTERM, so that unfinished artifacts are removed."""
    sys.exit(EXIT_TERMINATED)


def _usage_error(error: click.UsageError) -> InputError:
    """Click's message, with the near matches that click found."""
    where = error.ctx.command_path if error.ctx is not None else "optc"
    return InputError(
        error.format_message().rstrip("."), where=where, hint=f"'{where} --help' shows the usage"
    )


class InternalError(OptcError):
    """A bug: an exception that is none of optc's own."""

    kind = "internal"
    exit_code = EXIT_INTERNAL


def _internal_error(error: Exception) -> InternalError:
    return InternalError(
        f"{type(error).__name__}: {error}",
        where="internal error",
        hint="please report it with the traceback",
    )
