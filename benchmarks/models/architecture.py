"""An architecture: what builds a model of it, with random weights and an example of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from optc.system.sources.dim import Dim

#: A module that gives tensors by name, arguments for it, and dimensions that differ from call to
#: call.
Example: TypeAlias = tuple[torch.nn.Module, tuple[Any, ...], Mapping[str, Mapping[int, Dim]]]


@dataclass(frozen=True)
class Architecture:
    """An architecture of a library.

    Attributes:
        name: Of the class, or of the library's own list.
        library: That it is of.
        task: What its models are for.
        recipe: Of int8.
        build: Makes a model.
    """

    name: str
    library: str
    task: str
    recipe: str
    build: Callable[[], Example]


class Named(torch.nn.Module):
    """A model over one tensor or several, its results by name."""

    def __init__(self, model: torch.nn.Module, **keywords: Any) -> None:
        super().__init__()
        self.model, self.keywords = model, keywords

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Results of one input."""
        return tensors(self.model(x, **self.keywords))


def tensors(found: Any) -> dict[str, torch.Tensor]:
    """Tensors of any result by name."""
    if isinstance(found, torch.Tensor):
        return {"y": found}
    if not isinstance(found, Mapping):
        found = {f"y{index}": one for index, one in enumerate(found)}
    return {str(key): one for key, one in found.items() if isinstance(one, torch.Tensor)}
