"""Prompts to judge a model of diffusion by: the user's, or those that ship with optc."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.options.user_text import read_user_text

#: Where the user gives none: what is written here is all that is known of them.
SHIPPED = (
    "a lighthouse on a cliff at dusk, oil on canvas",
    "a photo of a red bicycle against a brick wall",
)
#: Images of a model that takes no prompts.
_COUNT = 2


def read_prompts(given: Sequence[Any]) -> tuple[str, ...]:
    """The user's prompts, from files of text, one a line.

    Raises:
        InputError: A file cannot be read or is no text, or none has a line.
    """
    found = tuple(line for one in given for line in _lines(one))
    if given and not found:
        raise InputError("no file has a line", where="inputs", hint="one prompt a line")
    return found


def prompts_of(given: Sequence[str], *, takes_prompts: bool) -> Sequence[str] | int:
    """The user's prompts, or those that ship; of a model that takes none, a number of images.

    Raises:
        InputError: The model takes no prompts.
    """
    if takes_prompts:
        return given or SHIPPED
    if given:
        raise InputError("the model takes no prompts", where="inputs", hint="leave them out")
    return _COUNT


def _lines(one: Any) -> list[str]:
    if not isinstance(one, str | Path):
        raise InputError(
            f"a model of diffusion is judged by prompts, not by {type(one).__name__}",
            where="inputs",
            hint="give files of text, one prompt a line",
        )
    text = read_user_text(Path(one))
    return [line.strip() for line in text.splitlines() if line.strip()]
