"""Parameters of a class as the tensors of a GGUF file: their names, shapes and order of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from optc.compiling.export.experts import stacks_of, taken
from optc.compiling.export.parameters import Weight, as_floats, shape_of
from optc.compiling.export.source_class import SourceClass
from optc.errors import UnsupportedError
from optc.importer.gguf.parameters import names_by_file, row_change
from optc.ir.weights import LazyWeight

_WEIGHT = ".weight"


class Placed(NamedTuple):
    """A tensor of a file: its rows, those of experts below each other, and its shape there."""

    weight: Weight
    shape: tuple[int, ...]


def place(
    model: SourceClass, architecture: str, weights: Mapping[str, Weight]
) -> dict[str, Placed]:
    """The weights by their names in files.

    Args:
        model: The class.
        architecture: In the words of the file.
        weights: Its parameters by name.

    Raises:
        UnsupportedError: The format has no name for one, or stores it in another form.
    """
    processor, names = names_by_file(model.model, architecture)
    theirs = defaultdict[str, list[str]](list)
    for name, parameter in names.items():
        theirs[parameter].append(name)
    found = dict[str, Placed]()
    for parameter, weight in weights.items():
        stacks = stacks_of(parameter, weight, model.origins.shapes[parameter])
        for stack in stacks:
            name = _named(theirs[parameter], f".ffn_{stack.part}_exps", parameter)
            found[name] = Placed(stack.weight, stack.shape)
        if stacks:
            continue
        name = _named(theirs[parameter], "", parameter)
        change = row_change(processor, name, shape_of(weight), parameter)
        if change.turned:
            raise UnsupportedError(
                "GGUF stores this tensor in another form", where=parameter, hint="use --format hf"
            )
        if change.added:
            weight = _lessened(as_floats(weight), np.float32(change.added))
        if change.order is not None:
            weight = taken(weight, np.argsort(change.order))
        found[name] = Placed(weight, shape_of(weight))
    return found


def _lessened(weight: LazyWeight, added: np.float32) -> LazyWeight:
    """The tensors that a reader adds a number to."""
    return weight.map_rows(lambda rows: np.asarray(rows, np.float32) - added, ir.DataType.FLOAT)


def _named(names: Sequence[str], part: str, parameter: str) -> str:
    """The name of a tensor; those of stacks have no suffix in transformers' table."""
    for name in names:
        if part in name:
            return name if not part or name.endswith(_WEIGHT) else name + _WEIGHT
    raise UnsupportedError("GGUF has no name for this tensor", where=parameter)
