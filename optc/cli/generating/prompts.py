"""The prompts of ``optc run``: texts, files, and conversations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optc.cli.generating.messages import Messages, parse_messages, with_system
from optc.cli.option_values import json_object
from optc.cli.valid_text import valid_text
from optc.errors import InputError
from optc.system.options.user_text import read_user_text, without_mark

if TYPE_CHECKING:
    from optc import Engine
    from optc.runtime.requests.prompts import Prompt

Command = TypeVar("Command", bound=Callable[..., Any])
#: Stands for stdin.
STDIN = "-"
_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """The prompts that a user wants to be continued.

    Attributes:
        prompts: Texts; ``-`` is what stdin holds.
        prompt_file: Files that hold one prompt each.
        messages: Files that hold one conversation each.
        chat: Prompts are what a user says in a conversation.
        system: What the system says first in each conversation; makes prompts conversations.
        chat_template_kwargs: Variables of the chat template in all conversations.
    """

    prompts: tuple[str, ...] = ()
    prompt_file: tuple[Path, ...] = ()
    messages: tuple[Path, ...] = ()
    chat: bool = False
    system: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def taken(cls, options: dict[str, Any]) -> PromptOptions:
        """Of a command's options, from which they are taken out.

        Raises:
            InputError: Two of them read stdin.
        """
        found = cls(**{f.name: options.pop(f.name) for f in fields(cls)})
        sources = (*found.prompts, *map(str, found.prompt_file), *map(str, found.messages))
        if sources.count(STDIN) > 1:
            raise InputError("stdin can be read once", where="--prompt -")
        return found

    @property
    def empty(self) -> bool:
        """There is no prompt."""
        return not (self.prompts or self.prompt_file or self.messages)

    def read(self) -> list[tuple[str, Prompt]]:
        """All prompts with a text that tells one from the others, first texts, then files.

        Raises:
            InputError: A file cannot be read, or holds no conversation.
        """
        texts = [without_mark(sys.stdin.read()) if text == STDIN else text for text in self.prompts]
        texts += [_contents(path, "--prompt-file") for path in self.prompt_file]
        found: list[tuple[str, Prompt]] = [(text, self.prompt(text)) for text in texts]
        for path in self.messages:
            said = parse_messages(_contents(path, "--messages"), f"--messages {path}")
            found.append((str(path), self.conversation(said)))
        return found

    def prompt(self, text: str) -> Prompt:
        """A text as it is, or as what a user says."""
        if not self.chat and self.system is None:
            return text
        return self.conversation([{"role": "user", "content": text}])

    def conversation(
        self, messages: Messages, variables: Mapping[str, Any] = MappingProxyType({})
    ) -> Prompt:
        """A conversation, which begins with what the system says.

        Args:
            messages: Its messages.
            variables: Of the chat template, beside and before those of all conversations.
        """
        from optc.runtime.requests.prompts import Chat

        variables = {**self.chat_template_kwargs, **variables}
        return Chat(with_system(messages, self.system), variables)


template_option = click.option(
    "--chat-template-kwargs",
    callback=json_object,
    metavar="JSON",
    help='Variables of the chat template: {"enable_thinking": false}.',
)


def unread_variables(engine: Engine, variables: Mapping[str, Any]) -> list[str]:
    """Warnings about variables of ``--chat-template-kwargs`` that the template does not read."""
    tokenizer = engine.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        return []
    said = "the chat template does not read it"
    return [f"--chat-template-kwargs: {name}: {said}" for name in tokenizer.unread(variables)]


def prompt_options(command: Command) -> Command:
    """Add the options of `PromptOptions` to a command."""
    for option in (
        template_option,
        click.option("--system", callback=valid_text, help="System prompt; implies --chat."),
        click.option(
            "--chat",
            is_flag=True,
            help="Render prompts as messages of a user with the chat template.",
        ),
        click.option(
            "--messages",
            type=_FILE,
            multiple=True,
            metavar="FILE",
            help='A conversation as JSON: [{"role": …, "content": …}, …], or - for stdin.',
        ),
        click.option(
            "--prompt-file",
            type=_FILE,
            multiple=True,
            metavar="FILE",
            help="File that holds one prompt.",
        ),
        click.option(
            "--prompt",
            "prompts",
            multiple=True,
            callback=valid_text,
            help="Prompt, or - for stdin; repeated.",
        ),
    ):
        command = option(command)
    return command


def _contents(path: Path, where: str) -> str:
    return without_mark(sys.stdin.read()) if str(path) == STDIN else read_user_text(path, where)
