"""The options of all commands: log options, ``--config``, and a variable for each option."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from optc.cli.config_file import read_config
from optc.cli.logs import be_quiet, show_log, write_log
from optc.cli.output import print_warnings
from optc.system.suggest import near, nearest

PREFIX = "OPTC"
#: Options whose variable may leave the command out: ``OPTC_LOG_FILE``.
_LOGS = ("quiet", "verbose", "log_file")
#: Where a context keeps the path of ``--config``, for messages.
_CONFIG = "optc.config"
#: Where a context keeps which of -q and -v was seen first, and what gave it.
_FIRST = "optc.first"


def variable(command: str, option: click.Option) -> str:
    """The environment variable of an option: ``OPTC_RUN_MAX_TOKENS`` of ``optc run
    --max-tokens``."""
    return variable_of(command, max(option.opts, key=len))


def variable_of(command: str, flag: str) -> str:
    """`variable` of an option by its flag."""
    return f"{PREFIX}_{command}_{flag.lstrip('-')}".replace("-", "_").upper()


def with_common_options(command: click.Command, name: str) -> click.Command:
    """A copy of a command with the options that all have, and their variables."""
    made = copy.copy(command)
    made.params = [copy.copy(parameter) for parameter in (*command.params, *_common())]
    for parameter in made.params:
        if isinstance(parameter, click.Option) and parameter.envvar is None:
            own = variable(name, parameter)
            short = f"{PREFIX}_{str(parameter.name).upper()}"
            parameter.envvar = [own, short] if parameter.name in _LOGS else own
    return made


def warn_of_variables(command: click.Command, name: str, commands: Collection[str]) -> None:
    """Warn of each variable that seems to be meant for one of the command's options and is none:
    the option is misspelled, or the command. ``commands`` are the names of all commands."""
    begin = variable_of(name, "")
    options = [p for p in command.params if isinstance(p, click.Option)]
    known = [variable(name, option).removeprefix(begin) for option in options]
    longer = tuple(variable_of(other, "") for other in commands if other.startswith(f"{name}-"))
    for one in sorted(os.environ):
        if longer and one.startswith(longer):
            continue  # of another command, whose name begins alike
        if one.startswith(begin) and one.removeprefix(begin) not in known:
            like = nearest(one.removeprefix(begin), known)
            usage = f"'optc {name} --help' lists the options"
            hint = f"did you mean {begin}{like}?" if like else usage
            print_warnings([f"{one} is no option of optc {name} and has no effect ({hint})"])
        elif option := _of_misspelled(one, name, known, commands):
            hint = f"did you mean {begin}{option}?"
            print_warnings([f"{one} names no command and has no effect ({hint})"])


def _of_misspelled(
    name: str, command: str, options: Collection[str], commands: Collection[str]
) -> str | None:
    """The option that a variable names behind what nearly is the command's name, if it does."""
    prefix, _, rest = name.partition("_")
    ends = [one for one in options if rest.endswith(f"_{one}")]
    if prefix != PREFIX or not ends:
        return None
    option = max(ends, key=len)
    given = rest.removesuffix(f"_{option}")
    word = command.upper().replace("-", "_")
    is_command = given.lower().replace("_", "-") in commands
    return option if not is_command and nearest(given, [word]) else None


def given_by(error: click.UsageError) -> str:
    """The variable or file that gave a wrong value; empty if the command line gave it."""
    parameter = getattr(error, "param", None)
    context = error.ctx
    if context is None or not isinstance(parameter, click.Option) or parameter.name is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    if source is ParameterSource.DEFAULT_MAP:
        return f"{context.meta[_CONFIG]}, given to --config,"
    if source is not ParameterSource.ENVIRONMENT:
        return ""
    names = parameter.envvar
    return (
        f"the environment variable {names if isinstance(names, str) else ' or '.join(names or ())}"
    )


def _common() -> list[click.Option]:
    return [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_configure,
            help="File of option values, YAML or JSON; the command line takes precedence.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_quiet,
            help="Suppress progress and notes on stderr.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_verbose,
            help="Log to stderr; -vv logs everything.",
        ),
        click.Option(
            ["--log-file"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            expose_value=False,
            callback=_log_file,
            help="File to append the whole log to.",
        ),
    ]


def _configure(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[_CONFIG] = value
        context.default_map = dict(context.default_map or {}) | _by_name(context, value)


def _by_name(context: click.Context, path: Path) -> dict[str, Any]:
    """The values of a file by the names of parameters.

    Raises:
        InputError: A key is no option of the command.
    """
    from optc.errors import InputError

    known = {_key(parameter): parameter for parameter in context.command.params}
    known = {key: parameter for key, parameter in known.items() if key not in ("config", "help")}
    found = {}
    for given, value in read_config(path).items():
        key = given.replace("_", "-")
        if key not in known:
            raise InputError(
                f"there is no option {given!r} of optc {context.info_name}",
                where=str(path),
                hint=near(key, list(known)),
            )
        found[str(known[key].name)] = _listed(known[key], value)
    return found


def _key(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len).lstrip("-").replace("_", "-")


def _listed(parameter: click.Parameter, value: Any) -> Any:
    """A value of an option that is repeated: a list; of a mapping ``key=value`` of each."""
    if not getattr(parameter, "multiple", False):
        return value
    if isinstance(value, dict):
        return [f"{key}={one}" for key, one in value.items()]
    return value if isinstance(value, list) else [value]


def _quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and _counts(context, parameter):
        be_quiet(context)


def _verbose(context: click.Context, parameter: click.Parameter, value: int) -> None:
    if value and _counts(context, parameter):
        show_log(value)


def _counts(context: click.Context, parameter: click.Parameter) -> bool:
    """True if this one of ``-q`` and ``-v`` counts: the command line, which click takes first, goes
    before variables and files.

    Raises:
        UsageError: The other one is given, too.
    """
    name = str(parameter.name)
    source = context.get_parameter_source(name)
    first, given = context.meta.setdefault(_FIRST, (name, source))
    if first == name:
        return True
    if given is ParameterSource.COMMANDLINE and source is not given:
        return False
    raise click.UsageError("--quiet and --verbose exclude each other; give one of them", context)


def _log_file(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        write_log(value)
