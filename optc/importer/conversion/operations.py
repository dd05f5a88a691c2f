"""transformers' operations on tensors of a checkpoint, as views.

Each function does what ``convert`` of the operation of that name does, without reading. Sources and
results are by pattern, as there: between two operations a tensor goes by its source's pattern,
behind the last by its target's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.core_model_loading import (
    Chunk,
    Concatenate,
    ConversionOps,
    Interleave,
    MergeModulelist,
    Split,
    Transpose,
)

from optc.errors import UnsupportedError
from optc.importer.conversion.reordered import Interleaved, Swapped
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Cut, Joined, Stacked

#: Tensors by pattern: several where a pattern stands for the experts of a layer.
Named = dict[str, list[Tensor]]


@dataclass(frozen=True)
class Context:
    """The conversion that an operation is part of.

    Attributes:
        target: The parameter that the first target pattern makes.
        sources: Patterns of the converter's sources, in its order.
        targets: Patterns of its targets.
        shapes: Shapes of the class's parameters by name.
        config: The text model's.
    """

    target: str
    sources: Sequence[str]
    targets: Sequence[str]
    shapes: Mapping[str, tuple[int, ...]]
    config: Any

    def one_target(self) -> str:
        """The pattern of the only target; else the operation is none that transformers does."""
        if len(self.targets) != 1:
            raise UnsupportedError(
                f"a conversion to {len(self.targets)} tensors where one is made", where=self.target
            )
        return self.targets[0]

    def name(self, pattern: str) -> str:
        """The parameter that a target pattern makes beside the first."""
        return self.target.replace(self.targets[0], pattern)


def convert(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    """The tensors behind ``operation``.

    Raises:
        UnsupportedError: It is none of those that are done as views.
        InputError: Shapes do not go together.
    """
    # the class itself: one derived from it does something else
    doing = _DOING.get(type(operation))
    if doing is None:
        raise UnsupportedError(
            f"its tensors need the conversion {operation!r}, which optc does not do",
            where=context.target,
            hint=f"optc does {', '.join(sorted(kind.__name__ for kind in _DOING))}; load the model "
            "with transformers and save it again with save_original_format=False",
        )
    return doing(operation, tensors, context)


def _stack(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    if operation.dim != 0:
        raise UnsupportedError(f"{operation!r} stacks along another axis", where=context.target)
    alone = len(tensors) == 1
    return {
        context.one_target() if alone else pattern: [Stacked(context.target, parts)]
        for pattern, parts in tensors.items()
    }


def _concatenate(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    parts = [one for pattern in context.sources for one in tensors.get(pattern, ())]
    return {context.one_target(): [Joined(context.target, parts, operation.dim)]}


def _chunk(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    tensor, axis = _only(tensors), operation.dim
    targets = list(context.targets)
    if operation.num_shards_attribute is not None:
        count = getattr(context.config, operation.num_shards_attribute)
        targets = [context.one_target().replace("*", str(index)) for index in range(count)]
    size = -(-tensor.shape[axis] // len(targets))
    bounds = [min(size * index, tensor.shape[axis]) for index in range(len(targets) + 1)]
    return _cut(tensor, axis, bounds, targets, context)


def _split(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    tensor, axis = _only(tensors), operation.dim
    bounds = [0]
    for pattern in context.targets:
        bounds.append(bounds[-1] + context.shapes[context.name(pattern)][axis])
    return _cut(tensor, axis, bounds, context.targets, context)


def _cut(
    tensor: Tensor, axis: int, bounds: Sequence[int], targets: Sequence[str], context: Context
) -> Named:
    return {
        pattern: [Cut(context.name(pattern), tensor, axis, start, stop)]
        for pattern, start, stop in zip(targets, bounds, bounds[1:], strict=False)
    }


def _interleave(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    view = Interleaved(context.target, _only(tensors), operation.dim, operation.inverse)
    return {context.targets[0]: [view]}


def _transpose(operation: ConversionOps, tensors: Named, context: Context) -> Named:
    tensor = _only(tensors)
    last = len(context.targets) == 1
    pattern = context.targets[0] if last else context.sources[0]
    if operation.check_dims and tensor.shape == context.shapes[context.target]:
        return {pattern: [tensor]}
    return {pattern: [Swapped(context.target, tensor, (operation.dim0, operation.dim1))]}


def _only(tensors: Named) -> Tensor:
    return next(iter(tensors.values()))[0]


_DOING: dict[type[ConversionOps], Callable[[Any, Named, Context], Named]] = {
    MergeModulelist: _stack,
    Concatenate: _concatenate,
    Chunk: _chunk,
    Split: _split,
    Interleave: _interleave,
    Transpose: _transpose,
}
