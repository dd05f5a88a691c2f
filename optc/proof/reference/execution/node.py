"""The operands and attributes of a node, as the functions that compute it take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

#: A node's inputs; None where one is left out.
Operands = Sequence[Tensor | None]
#: Its attributes as Python values.
Attributes = Mapping[str, Any]
#: Gives the node's result, or a tuple of its results.
Function = Callable[[Operands, Attributes], Tensor | tuple[Tensor, ...]]


def given(operands: Operands, index: int) -> Tensor:
    """An operand that has to be there.

    Raises:
        ValueError: It is left out.
    """
    value = operands[index] if index < len(operands) else None
    if value is None:
        raise ValueError(f"operand {index} is left out")
    return value


def optional(operands: Operands, index: int) -> Tensor | None:
    """An operand that may be left out."""
    return operands[index] if index < len(operands) else None


def present(operands: Operands) -> list[Tensor]:
    """Those that are there."""
    return [value for value in operands if value is not None]


def integers(operands: Operands, index: int) -> list[int]:
    """The numbers of an operand, flattened."""
    return [int(x) for x in given(operands, index).flatten().tolist()]
