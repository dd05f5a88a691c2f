"""Tensors of a GGUF file as the parameters of transformers' class.

Which tensor is which parameter, transformers knows (`get_gguf_hf_weights_map`); what it does to a
tensor, its processors do to whole arrays. Here they get the numbers of rows instead of the rows,
so that what comes out says it: rows in another order, rows with a number added, or something else,
which is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

from optc.errors import UnsupportedError
from optc.importer.conversion.reordered import Swapped
from optc.importer.conversion.row_views import Shifted, Taken
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Joined, Renamed, Stacked

#: What rotary frequencies are divided by, where a file has it.
FACTORS = "rope_freqs.weight"
_GATE_UP = re.compile(r"layers\.(\d+)\.mlp\.experts\.gate_up_proj$")
#: What processors raise at arrays of another shape than they expect.
_REFUSALS = (ValueError, IndexError, KeyError, TypeError, AttributeError)


def gguf_parameters(
    tensors: Mapping[str, Tensor], model: PreTrainedModel, architecture: str
) -> dict[str, Tensor]:
    """The tensors by the names of the class's parameters; those that it has none for by their own.

    Args:
        tensors: By their names in the file.
        model: The class, on the meta device.
        architecture: In the words of the file.

    Raises:
        UnsupportedError: transformers has no names for the architecture, or does something to a
            tensor that is more than taking rows and adding a number.
    """
    processor, names = names_by_file(model, architecture)
    found: dict[str, Tensor] = {}
    # two tensors that are one parameter are an expert's gate and up: "gate" sorts first
    for name in sorted(tensors):
        # parameters of stacked experts have no suffix
        one, target = tensors[name], names.get(name, names.get(name.removesuffix(".weight")))
        if target is None:
            found[name] = one
            continue
        done = _processed(processor, name, one)
        before = found.get(target)
        found[target] = (
            Renamed(target, done) if before is None else Joined(target, [before, done], 1)
        )
    return found


@dataclass(frozen=True)
class RowChange:
    """A change that transformers makes to the rows of a tensor of a file.

    Attributes:
        order: The number, in the file, of the row at each place; None if they stay in order.
        added: Number that is added to all values.
        turned: Axes are added or exchanged, and the numbers stay.
    """

    order: npt.NDArray[np.int64] | None = None
    added: float = 0.0
    turned: bool = False


def row_change(
    processor: TensorProcessor, name: str, shape: Sequence[int], where: str
) -> RowChange:
    """The processor's change of a tensor, found by what it does to the numbers of its rows.

    Args:
        processor: Of the architecture.
        name: Of the tensor in the file.
        shape: Of the tensor.
        where: For messages.

    Raises:
        UnsupportedError: It is more than another order of rows, or a number added.
    """
    rows = shape[0]
    numbers = np.arange(rows, dtype=np.float64)
    flat = (rows, *(1 for _ in shape[1:]))
    try:
        result = processor.process(
            weights=numbers.reshape(flat), name=name, parsed_parameters={"tensors": {}}
        ).weights
    except _REFUSALS as error:
        raise _refusal(where) from error
    if result.shape != flat:
        if np.array_equal(result.ravel(), numbers) and result.ndim == 2:
            return RowChange(turned=True)
        raise _refusal(where)
    found = result.reshape(rows)
    if np.array_equal(found, numbers):
        return RowChange()
    if np.array_equal(np.sort(found), numbers):
        return RowChange(order=found.astype(np.int64))
    added = found - numbers
    if (added == added[0]).all():
        return RowChange(added=float(added[0]))
    raise _refusal(where)


def _processed(processor: TensorProcessor, name: str, tensor: Tensor) -> Tensor:
    change = row_change(processor, name, tensor.shape, tensor.where)
    if change.turned:
        if len(tensor.shape) == 1:
            return Stacked(tensor.name, [tensor])
        return Swapped(tensor.name, tensor, (0, 1))
    if change.order is not None:
        return Taken(tensor.name, tensor, change.order)
    return Shifted(tensor.name, tensor, change.added) if change.added else tensor


def _refusal(where: str) -> UnsupportedError:
    return UnsupportedError(
        "transformers computes with this tensor when it loads it, more than optc does as it reads",
        where=where,
        hint="compile the model's folder with safetensors instead",
    )


def names_by_file(
    model: PreTrainedModel, architecture: str
) -> tuple[TensorProcessor, dict[str, str]]:
    """transformers' processor of an architecture, and the parameter of each name in a file.

    Raises:
        UnsupportedError: transformers has no names for the architecture.
    """
    config = model.config.get_text_config().to_dict()
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=config)
    # mixtral is a llama there
    shared = "llama" if model.config.model_type == "mixtral" else None
    try:
        names = get_gguf_hf_weights_map(_Top(model), processor, model_type=shared)
        if len(set(names.values())) < len(model.state_dict()):
            names = get_gguf_hf_weights_map(model, processor, model_type=shared)
        return processor, names | (_gates_and_ups(model) if shared else {})
    except NotImplementedError as error:
        raise UnsupportedError(str(error), where=architecture) from error


class _Top:
    """A model that hides its modules.

    transformers looks up the names of all parameters again for every module, in case the model's
    class finds none, and makes a table of thousands of names each time.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.config = model.config
        self.state_dict = model.state_dict

    def named_children(self) -> tuple[()]:
        """None."""
        return ()


def _gates_and_ups(model: PreTrainedModel) -> dict[str, str]:
    """The parameters that hold gate and up of all experts, under both their names in a file."""
    found = ((name, _GATE_UP.search(name)) for name, _ in model.named_parameters())
    return {
        f"blk.{match[1]}.ffn_{part}_exps": name
        for name, match in found
        if match
        for part in ("gate", "up")
    }


def rotary_factors(tensors: Mapping[str, Tensor]) -> npt.NDArray[Any] | None:
    """The divisors of the rotary frequencies, float32 [r/2]; None if the file has nothing."""
    factors = tensors.get(FACTORS)
    return None if factors is None else factors.read_rows(0, factors.shape[0])
