"""Shell completions for values of options: names that are installed, or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from optc import registry

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def recipes_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Shipped recipes; files, where no recipe begins so."""
    found = _beginning(registry.recipe_files(), incomplete)
    return found or [CompletionItem(incomplete, type="file")]


def backends(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Installed backends; the target behind a colon is the user's."""
    return _beginning(registry.backend_names(), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


#: By name of the option.
COMPLETIONS: dict[str, Complete] = {"recipe": recipes_or_files, "backend": backends}
