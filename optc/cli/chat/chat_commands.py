"""The commands of ``optc chat`` itself: lines that begin with a slash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from optc.cli.chat.conversation import Conversation
from optc.cli.generating.messages import read_messages, write_messages
from optc.cli.generating.sampling import CHAT_NAMES
from optc.errors import InputError
from optc.system.safe_json import JSONError, parse_json


class EndError(Exception):
    """The user has ended the conversation."""


class ChatCommand(NamedTuple):
    """One command.

    Attributes:
        argument: What may follow its name; empty is nothing.
        help: What it does.
        run: Takes the conversation and what follows the name; gives what is to be shown.
    """

    argument: str
    help: str
    run: Callable[[Conversation, str], str]


def run_command(conversation: Conversation, line: str) -> str:
    """Do what a line such as ``/save chat.json`` says; gives what is to be shown.

    Raises:
        InputError: There is no such command, or its argument is wrong.
        EndError: It was ``/exit``.
    """
    name, _, argument = line[1:].strip().partition(" ")
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists commands; //text says /text"
        raise InputError(f"no command /{name}", where="chat", hint=hint)
    command = COMMANDS[name]
    argument = argument.strip()
    if argument and not command.argument:
        raise InputError(f"/{name} takes nothing", where="chat", hint=f"you gave {argument!r}")
    return command.run(conversation, argument)


def _help(conversation: Conversation, argument: str) -> str:
    usages = {f"/{name} {c.argument}".strip(): c.help for name, c in COMMANDS.items()}
    width = max(map(len, usages))
    return "\n".join(f"{usage:{width}}  {text}" for usage, text in usages.items())


def _reset(conversation: Conversation, argument: str) -> str:
    conversation.reset()
    return "the conversation begins anew"


def _save(conversation: Conversation, argument: str) -> str:
    write_messages(_path("save", argument), conversation.messages)
    return f"{len(conversation.messages)} messages are in {argument}"


def _load(conversation: Conversation, argument: str) -> str:
    conversation.messages = read_messages(_path("load", argument), "/load")
    return f"{len(conversation.messages)} messages of {argument}"


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise InputError(f"/{name} takes a file", where="chat", hint=f"/{name} chat.json")
    return Path(argument).expanduser()


def _params(conversation: Conversation, argument: str) -> str:
    changes = dict(_change(word) for word in argument.split())
    conversation.params = conversation.params.changed(**changes)
    return "\n".join(_effective(conversation))


def _effective(conversation: Conversation) -> Iterator[str]:
    """Each parameter as it holds for the next answer."""
    stated = conversation.params
    params = stated.with_defaults(conversation.engine.defaults)
    for name in CHAT_NAMES:
        source = "  (the model's own)" if name in params.stated - stated.stated else ""
        yield f"{name}={json.dumps(getattr(params, name))}{source}"


def _change(word: str) -> tuple[str, Any]:
    """A parameter and its value: JSON, else the text itself."""
    name, given, text = word.partition("=")
    name = name.replace("-", "_")
    if name not in CHAT_NAMES or not given:
        near = get_close_matches(name, CHAT_NAMES, 1)
        hint = f"did you mean {near[0]}=…?" if near else "/params temperature=0.7 top_p=0.9"
        raise InputError(f"{word!r} sets no parameter", where="/params", hint=hint)
    try:
        value = parse_json(text)
    except JSONError:
        return name, text
    if name == "logit_bias" and isinstance(value, dict):  # JSON has no keys that are numbers
        value = {int(key) if key.isdecimal() else key: bias for key, bias in value.items()}
    return name, value


def _stats(conversation: Conversation, argument: str) -> str:
    return "\n".join(conversation.speed.lines(conversation.engine.max_context))


def _exit(conversation: Conversation, argument: str) -> str:
    raise EndError


COMMANDS = {
    "help": ChatCommand("", "list commands", _help),
    "reset": ChatCommand("", "forget all but the system's message", _reset),
    "save": ChatCommand("FILE", "write the messages as JSON", _save),
    "load": ChatCommand("FILE", "go on from messages that were saved", _load),
    "params": ChatCommand("[NAME=VALUE …]", "show or set sampling parameters", _params),
    "stats": ChatCommand("", "tokens, speed, and how full the context is", _stats),
    "exit": ChatCommand("", "end, as Ctrl-D does", _exit),
}
