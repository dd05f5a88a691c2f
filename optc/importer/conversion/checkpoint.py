"""A checkpoint under the names and in the layout of the model's class.

transformers' mapping says which tensors go by other names and which are made of others; this does
the same with views that it does with whole tensors when it loads a model
(``core_model_loading.convert_and_load_state_dict_in_model``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    WeightTransform,
    dot_natural_key,
    rename_source_key,
)

from optc.errors import InputError
from optc.importer.conversion.operations import Context, Named, convert
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Renamed


@dataclass(frozen=True)
class Conversion:
    """The conversion of the checkpoints of a class into its parameters.

    Attributes:
        transforms: transformers' renamings and converters, in order.
        base_prefix: What names of the class's inner model begin with.
        shapes: Of the class's parameters and buffers by name.
        config: The text model's.
        model: The model itself.
    """

    transforms: Sequence[WeightTransform]
    base_prefix: str
    shapes: dict[str, tuple[int, ...]]
    config: Any
    model: PreTrainedModel

    @classmethod
    def of(cls, model: PreTrainedModel) -> Conversion:
        """That of a model, which may be on the meta device."""
        return cls(
            get_model_conversion_mapping(model),
            model.base_model_prefix,
            {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()},
            model.config.get_text_config(),
            model,
        )


@dataclass
class _Group:
    """Tensors that one converter makes something of."""

    converter: WeightConverter
    tensors: Named = field(default_factory=dict)


def convert_checkpoint(
    checkpoint: Mapping[str, Tensor], conversion: Conversion
) -> dict[str, Tensor]:
    """The tensors by the names of the class's parameters; those that it has none for by their own.

    Raises:
        InputError: Two tensors are one parameter, or shapes do not go together.
        UnsupportedError: A parameter needs an operation that is not done as a view.
    """
    transforms = conversion.transforms
    renamings = [one for one in transforms if isinstance(one, WeightRenaming)]
    converters = [one for one in transforms if isinstance(one, WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    found: dict[str, Tensor] = {}
    groups: dict[str, _Group] = {}
    for name in sorted(checkpoint, key=dot_natural_key):
        target, pattern = _renamed(name, renamings, converters, conversion)
        tensor = checkpoint[name]
        if target not in conversion.shapes:
            target, pattern = name, None
        if pattern is not None:
            group = groups.setdefault(target, _Group(by_pattern[pattern]))
            group.tensors.setdefault(pattern, []).append(tensor)
        elif target in found:
            raise InputError(
                f"is the parameter {target}, as is {found[target].where}",
                where=tensor.where,
                hint="leave one of them out",
            )
        else:
            found[target] = tensor if target == tensor.name else Renamed(target, tensor)
    for target, group in groups.items():
        found |= _converted(target, group, conversion)
    return found


def class_name(name: str, conversion: Conversion) -> str:
    """The class's name of a parameter that may go by the name of an older class."""
    renamings = [one for one in conversion.transforms if isinstance(one, WeightRenaming)]
    return _renamed(name, renamings, [], conversion)[0]


def _renamed(
    name: str,
    renamings: Sequence[WeightRenaming],
    converters: Sequence[WeightConverter],
    conversion: Conversion,
) -> tuple[str, str | None]:
    """The parameter that a tensor is, or goes into by the converter of which pattern."""
    prefix, shapes = conversion.base_prefix, conversion.shapes
    target, pattern = rename_source_key(name, renamings, converters, prefix, shapes)
    if target not in shapes and name in shapes:
        return rename_source_key(name, [], [], prefix, shapes)
    return target, pattern


def _converted(target: str, group: _Group, conversion: Conversion) -> dict[str, Tensor]:
    converter, tensors = group.converter, group.tensors
    context = Context(
        target,
        converter.source_patterns,
        converter.target_patterns,
        conversion.shapes,
        conversion.config,
    )
    for operation in converter.operations:
        tensors = convert(operation, tensors, context)
    first = next((one for one in tensors if one in target), None)
    before, _, behind = target.partition(first) if first is not None else ("", "", "")
    return {
        name: one if one.name == name else Renamed(name, one)
        for pattern, (one, *_) in tensors.items()
        for name in [before + pattern + behind]
    }
