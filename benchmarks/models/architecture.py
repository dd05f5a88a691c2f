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


class Keyed(torch.nn.Module):
    """A model over tensors by the names of its arguments, its results by name."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...], **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Results of inputs in the order of the names."""
        return tensors(self.model(**dict(zip(self.names, inputs, strict=True)), **self.options))


def tensors(found: Any) -> dict[str, torch.Tensor]:
    """Tensors of any result by name."""
    if isinstance(found, torch.Tensor):
        return {"y": found}
    if not isinstance(found, Mapping):
        found = {f"y{index}": one for index, one in enumerate(found)}
    flat: dict[str, torch.Tensor] = {}
    for key, one in found.items():
        parts = {f"{key}_{n}": part for n, part in enumerate(one)} if isinstance(one, tuple) else {}
        flat |= {str(k): v for k, v in (parts or {key: one}).items() if isinstance(v, torch.Tensor)}
    return flat
