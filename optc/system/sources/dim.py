"""`Dim`: a dimension of a model's tensors that is not fixed."""

from __future__ import annotations

from dataclasses import dataclass

from optc.errors import InputError

#: Sizes that a dimension may have where nothing bounds it.
MOST = 1 << 20


@dataclass(frozen=True)
class Dim:
    """A dimension whose size each call chooses; of one name, it is the same in all tensors.

    Attributes:
        name: An identifier, such as ``batch``.
        least: Smallest size.
        most: Largest size.

    Raises:
        InputError: The name is no identifier, or the sizes are none.
    """

    name: str
    least: int = 1
    most: int = MOST

    def __post_init__(self) -> None:
        """Refuse what is no dimension."""
        if not self.name.isidentifier():
            raise InputError(
                f"{self.name!r} is no name", where="dimension", hint="letters, digits and _"
            )
        if not 0 <= self.least <= self.most:
            raise InputError(
                f"sizes from {self.least} to {self.most}",
                where=f"dimension {self.name}",
                hint="at least 0, and no fewer behind than before",
            )


def parse_dim(text: str) -> Dim:
    """The dimension that ``NAME=LEAST..MOST`` or ``NAME=SIZE`` says.

    Raises:
        InputError: It says none.
    """
    name, equals, sizes = text.partition("=")
    least, dots, most = sizes.partition("..")
    try:
        first = int(least)
        last = int(most) if dots else first
    except ValueError:
        equals = ""
        first = last = 0
    if not equals:
        raise InputError(f"{text!r} is no dimension", where="--dim", hint="such as batch=1..64")
    return Dim(name.strip(), first, last)
