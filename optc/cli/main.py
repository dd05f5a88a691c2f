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

from optc.cli.common_options import (
    given_by,
    variable_of,
    warn_of_variables,
    with_common_options,
)
from optc.cli.logs import detach_logs
from optc.cli.output import JSON_FLAG, print_error
from optc.cli.streams import OutputError, ReaderLeftError, abandon_stdout, guard_streams
from optc.errors import EngineError, InputError, OptcError
from optc.system.logs.logger import logger
from optc.system.no_memory import memory_error, no_memory
from optc.system.suggest import near, nearest
from optc.system.supported import check_system

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

#: Commands in the order of ``optc --help``, and the modules that hold them.
COMMANDS = {
    "compile": "compile",
    "plan": "plan",
    "distill": "distill",
    "qat": "qat",
    "run": "run",
    "chat": "chat",
    "serve": "serving.serve",
    "dynamo-worker": "serving.dynamo_worker",
    "replay": "serving.replay",
    "bench": "bench",
    "bench-serve": "serving.bench_serve",
    "tune": "tune",
    "eval": "evaluate",
    "inspect": "inspect",
    "diff": "judging.diff",
    "report": "report",
    "export": "checkpoints.export",
    "verify": "verify",
    "sign": "trust.sign",
    "patch": "patches.patch",
    "apply": "patches.apply",
    "list": "store.listing",
    "rm": "store.remove",
    "push": "store.push",
    "pull": "store.pull",
    "tag": "store.tag",
    "untag": "store.untag",
    "prune": "store.prune",
    "recipes": "recipes",
    "families": "families",
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
        """The command, or None if there is no such name.

        Raises:
            UnavailableError: This is no system that commands run on.
        """
        check_system()
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"optc.cli.commands.{COMMANDS[cmd_name]}")
        return with_common_options(module.command, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the name that may have been meant.

        Raises:
            InputError: No such command.
        """
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise InputError(
                f"No such command {name!r}", where="optc", hint=near(name, list(COMMANDS))
            )
        found, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:  # completion prints nothing else
            warn_of_variables(command, name, COMMANDS)
        return found, command, rest


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"optc {version('optc')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Compile language models into artifacts, prove them against the source, and run them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; docs/cli.md lists them.

    Whatever stops a command, its message is printed here, under ``--json`` as one object on stdout.
    """
    as_json = JSON_FLAG in arguments or _json_variable(arguments)
    try:
        code = _run(arguments, as_json)
        sys.stdout.flush()
    except OutputError as error:
        return lose_output(error)
    finally:
        detach_logs()
    return code


def _json_variable(arguments: Sequence[str]) -> bool:
    """True if ``OPTC_RUN_JSON``, of the command that is run, asks for JSON."""
    command = next((word for word in arguments if word in COMMANDS), "")
    value = os.environ.get(variable_of(command, JSON_FLAG), "")
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def _run(arguments: Sequence[str], as_json: bool) -> int:
    try:
        outcome = cli.main(list(arguments), prog_name="optc", standalone_mode=False)
    except OutputError:
        raise
    except click.UsageError as error:
        return _print_error(_usage_error(error), as_json)
    except click.ClickException as error:
        return _print_error(InputError(error.format_message()), as_json)
    except EngineError as error:  # its cause may be a bug
        if no_memory(error):
            return _print_error(memory_error(), as_json)
        traceback.print_exc()
        return _print_error(error, as_json)
    except OptcError as error:
        return _print_error(error, as_json)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # click takes that for an interrupt
            return _print_bug(error.__cause__, as_json)
        return _print_stop(StoppedError("interrupted"), as_json)
    except _Terminated:
        return _print_stop(TerminatedError("terminated"), as_json)
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything else is a bug
        if no_memory(error):
            return _print_error(memory_error(), as_json)
        return _print_bug(error, as_json)
    return outcome if isinstance(outcome, int) else 0


def lose_output(error: OutputError) -> int:
    """Say on stderr that stdout takes no results, unless its reader wanted no more of them."""
    abandon_stdout()
    return (
        error.exit_code if isinstance(error, ReaderLeftError) else print_error(error, as_json=False)
    )


def main() -> NoReturn:
    """Console script ``optc``."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)
    try:
        guard_streams()
    except OutputError as error:
        sys.exit(lose_output(error))
    sys.exit(run(sys.argv[1:]))


class _Terminated(SystemExit):
    """SIGTERM came."""


def _terminate(number: int, frame: FrameType | None) -> None:
    """Unwind the stack on SIGTERM, so that unfinished artifacts are removed; a second one must not
    disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated(EXIT_TERMINATED)


def _usage_error(error: click.UsageError) -> InputError:
    """Click's message; for an option that does not exist, the one that may have been meant."""
    where = error.ctx.command_path if error.ctx is not None else "optc"
    said = " ".join(error.format_message().split())  # click lists choices one below the other
    message, hint = said.rstrip("."), f"'{where} --help' shows the usage"
    if isinstance(error, click.NoSuchOption):
        message = f"No such option {error.option_name!r}"
        found = nearest(error.option_name, _options(error.ctx))
        hint = f"did you mean {found!r}?" if found else hint
    if given := given_by(error):
        hint = f"{given} says so"
    return InputError(message, where=where, hint=hint)


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    parameters = context.command.get_params(context)
    return [name for p in parameters if isinstance(p, click.Option) for name in p.opts]


class StoppedError(OptcError):
    """Ctrl-C, or SIGINT."""

    kind = "interrupted"
    exit_code = EXIT_INTERRUPTED


class TerminatedError(OptcError):
    """SIGTERM."""

    kind = "terminated"
    exit_code = EXIT_TERMINATED


class InternalError(OptcError):
    """A bug: an exception that is none of optc's own."""

    kind = "internal"
    exit_code = EXIT_INTERNAL


def _print_error(error: OptcError, as_json: bool) -> int:
    """As `print_error`; on stderr where stdout does not take the object. The log has it too."""
    logger("optc.cli").error("%s", error.render())
    try:
        return print_error(error, as_json)
    except OutputError:
        abandon_stdout()
        return print_error(error, as_json=False)


def _print_stop(error: OptcError, as_json: bool) -> int:
    """A line on stderr for whoever watches, and the object of ``--json``."""
    click.echo(error.message, err=True)
    return _print_error(error, as_json) if as_json else error.exit_code


def _print_bug(error: BaseException, as_json: bool) -> int:
    traceback.print_exception(error)
    bug = InternalError(
        f"{type(error).__name__}: {error}",
        where="internal error",
        hint="please report it with the traceback",
    )
    return _print_error(bug, as_json)
