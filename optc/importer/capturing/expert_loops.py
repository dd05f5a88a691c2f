"""Loops over the experts that are hit, as nodes: what a loop does for one expert, done for all.

Classes that transformers' interface of experts does not reach loop over experts: of a mask of
tokens by expert, each takes its tokens' rows, multiplies them by its weights, and adds the results
to those of its tokens, times their weights. Such a loop cannot be exported, because how often it
turns depends on data. So its body is run once, on stand-ins that say what they are: a mask of
experts, one of them, its places in the mask, its weights, its rows. Operators that are known on
them give stand-ins again, or the operators of `optc.importer.capturing.experts`; any other is
refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch.overrides import TorchFunctionMode

from optc.errors import UnsupportedError
from optc.importer.capturing.experts import combine_experts
from optc.importer.capturing.stand_ins import (
    EXPERT,
    SLOT,
    TOKEN,
    Chosen,
    Counts,
    Expert,
    Mask,
    Matrix,
    Places,
    Rows,
    StandIn,
    Weights,
    each,
    unknown,
)

#: The parameters of forward, as those of the functions of transformers' interface.
_PARAMETERS = ["hidden_states", "top_k_index", "top_k_weights"]


def unroll_loops(model: torch.nn.Module) -> None:
    """Let the modules of ``model`` that loop over experts run as nodes. They are no use behind it
    but for an export."""
    for module in model.modules():
        # those that the interface reaches know their gates
        if [*inspect.signature(module.forward).parameters] == _PARAMETERS and not hasattr(
            module, "has_gate"
        ):
            run = functools.partial(_run, type(module).__name__, module.forward)
            module.forward = run


def _run(
    where: str,
    forward: Callable[..., Any],
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The result of ``forward``, its loop's body run once.

    Raises:
        UnsupportedError: The body does what is not known.
    """
    try:
        with _Body():
            found = forward(hidden_states, Chosen(top_k_index), Weights(top_k_weights))
    except UnsupportedError as error:
        raise UnsupportedError(error.message, where=where) from error
    except (AttributeError, TypeError, ValueError, NotImplementedError) as error:
        raise UnsupportedError(f"a loop over experts is not known: {error}", where=where) from error
    if not isinstance(found, torch.Tensor):
        raise UnsupportedError("a loop over experts gives no tensor", where=where)
    return found


class _Body(TorchFunctionMode):
    """Operators on stand-ins are looked up; all others are what they are."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """``function``, or what stands for it.

        Raises:
            UnsupportedError: It is not known on stand-ins.
        """
        kwargs = kwargs or {}
        if not any(isinstance(one, StandIn) for one in _flat([*args, *kwargs.values()])):
            return function(*args, **kwargs)
        known = _KNOWN.get(function)
        if known is None:
            raise unknown(function)
        return known(*args, **kwargs)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _one_hot(chosen: Chosen, num_classes: int) -> Mask:
    return Mask(chosen.index, (TOKEN, SLOT, EXPERT))


def _greater(counts: Counts, number: object) -> Counts:
    if number != 0 or not isinstance(counts, Counts):
        raise UnsupportedError("a loop over experts visits some of those that are hit")
    return Counts(counts.index, hit=True)


def _where(mask: Mask) -> tuple[Places, ...]:
    if len(mask.axes) != 2:
        raise UnsupportedError("a loop over experts looks for more than its tokens")
    return tuple(Places(axis) for axis in mask.axes)


def _taken(tensor: torch.Tensor, place: object) -> Rows | Matrix:
    """Rows of the tokens of a turn's expert, or its weight."""
    if isinstance(place, Places) and place.axis == TOKEN and tensor.dim() == 2:
        return Rows(tensor, spread=True)
    if isinstance(place, Expert) and tensor.dim() == 3:
        return Matrix(tensor, place.index)
    raise UnsupportedError("a loop over experts takes a part that is not known")


def _linear(rows: Rows, matrix: Matrix, bias: object = None) -> Rows:
    if bias is not None or not isinstance(rows, Rows) or not isinstance(matrix, Matrix):
        raise UnsupportedError("a loop over experts has a layer that is not known")
    return rows.matmul(matrix.T)


def _added(total: torch.Tensor, axis: int, places: Places, rows: Rows) -> torch.Tensor:
    """The weighed results, added to those of the experts before."""
    known = isinstance(places, Places) and places.axis == TOKEN and isinstance(rows, Rows)
    if not known or axis != 0 or rows.factor is None:
        raise UnsupportedError("a loop over experts adds more than weighed rows of its tokens")
    return total.add_(combine_experts(rows.values, rows.factor))


_KNOWN: dict[Any, Callable[..., Any]] = {
    F.one_hot: _one_hot,
    torch.greater: _greater,
    torch.gt: _greater,
    torch.where: _where,
    F.linear: _linear,
    torch.matmul: lambda rows, matrix: rows.matmul(matrix),
    torch.Tensor.__getitem__: _taken,
    torch.Tensor.index_add_: _added,
    **{
        function: functools.partial(each, function)
        for function in (F.silu, F.gelu, F.relu, torch.sigmoid, torch.tanh, torch.mul, torch.add)
    },
}
