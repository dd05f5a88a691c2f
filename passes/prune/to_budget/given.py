"""Numbers of neurons that a recipe, or the manifest of a compile, states."""

from __future__ import annotations

from collections.abc import Sequence

from optc.errors import InputError
from optc.passes.prune.structured.channels import Channels


def given_counts(texts: Sequence[str], channels: Sequence[Channels], name: str) -> list[int]:
    """Units that stay of each of the channels: those of texts ``weight=768``, or all.

    Args:
        texts: By the name of the first weight that reads the channels.
        channels: The model's.
        name: Of the pass, for messages.

    Raises:
        InputError: A text is none, or names what is not there.
    """
    where, units = f"pass {name}, left", {one.name: one.units for one in channels}
    found = dict(units)
    for text in texts:
        weight, _, count = text.rpartition("=")
        if not weight or not (count.isascii() and count.isdigit()):
            raise InputError(f"{text!r} is not weight=number", where=where)
        if weight not in units:
            raise InputError(
                f"no MLP ends with the weight {weight!r}",
                where=where,
                hint=f"there are {', '.join(sorted(units)[:4])}, …",
            )
        if not 0 < int(count) <= units[weight]:
            raise InputError(f"{text!r}: the MLP has {units[weight]} neurons", where=where)
        found[weight] = int(count)
    return [found[one.name] for one in channels]
