"""Prompts to judge a model of diffusion by: the user's, or those that ship with optc."""

from __future__ import annotations

from collections.abc import Sequence

from optc.errors import InputError

#: Where the user gives none: what is written here is all that is known of them.
SHIPPED = (
    "a lighthouse on a cliff at dusk, oil on canvas",
    "a photo of a red bicycle against a brick wall",
)
#: Images of a model that takes no prompts.
_COUNT = 2


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
