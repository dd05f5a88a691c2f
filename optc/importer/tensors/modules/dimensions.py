"""Dimensions of a module's arguments that differ from call to call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optc.errors import InputError, UnsupportedError
from optc.system.sources.dim import Dim

#: Dimensions of an argument, or of a tensor within it, that differ from call to call.
Dynamic = Mapping[str, Mapping[int, Dim]]


def dynamic_shapes(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Dynamic
) -> dict[str, Any] | None:
    """As `torch.export.export` wants them, for every argument that is given.

    A tensor in a list, a dict or another structure has the dimensions that are stated for it, by
    the name of the argument and the keys (``batch_ids``), or else those of the argument, as far
    as it has their axes.

    Raises:
        InputError: There is no tensor of a name.
        UnsupportedError: Arguments have no names in forward.
    """
    if not dynamic:
        return None
    signature = inspect.signature(module.forward)
    bound = signature.bind(*args, **kwargs).arguments
    free = [one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD]
    if given := [name for name in free if name in bound]:
        raise UnsupportedError(
            f"forward takes {', '.join(bound[given[0]])} as **{given[0]}, and PyTorch exports that "
            "with the sizes of the example alone",
            where="dynamic",
            hint="name these arguments in forward, or wrap it by a module that does",
        )
    leaves = [key for name, value in bound.items() for key in _names(name, value)]
    unknown = [name for name in dynamic if name not in bound and name not in leaves]
    if unknown:
        raise InputError(
            f"forward is given no argument {unknown[0]!r}",
            where="dynamic",
            hint=f"it is given {', '.join(dict.fromkeys((*bound, *leaves)))}",
        )
    made = {
        d.name: torch.export.Dim(d.name, min=d.least, max=d.most)
        for axes in dynamic.values()
        for d in axes.values()
    }

    def stated(path: Sequence[Any], leaf: Any, name: str) -> dict[int, Any] | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        axes = dynamic.get(_name(name, path), dynamic.get(name, {}))
        within = path != ()
        return {
            axis: made[d.name] for axis, d in axes.items() if axis < leaf.ndim or not within
        } or None

    return {
        name: pytree.tree_map_with_path(lambda path, leaf, n=name: stated(path, leaf, n), value)
        for name, value in bound.items()
    }


def axes_of(name: str, dynamic: Dynamic) -> Mapping[int, Dim]:
    """The stated dimensions of an input by its name: its own, or those of the argument that it is
    in."""
    if name in dynamic:
        return dynamic[name]
    around = [one for one in dynamic if name.startswith(f"{one}_")]
    return dynamic[max(around, key=len)] if around else {}


def _names(argument: str, value: Any) -> Iterator[str]:
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        if isinstance(leaf, torch.Tensor):
            yield _name(argument, path)


def _name(argument: str, path: Sequence[Any]) -> str:
    keys = (getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in path)
    return "_".join(map(str, (argument, *keys)))
