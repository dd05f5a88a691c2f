"""The parameters of a class with what an adapter changes in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers.pytorch_utils import Conv1D

from optc.errors import InputError, UnsupportedError
from optc.importer.adapted.folder import ADAPTER
from optc.importer.adapted.tensors import AdapterTensors, ModuleTensors, adapter_tensors
from optc.importer.adapted.views import Added, LowRank, Rows
from optc.importer.conversion.checkpoint import Conversion, class_name
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Renamed
from optc.system.sources.adapter import read_adapter_config, weights_of
from optc.system.sources.peft_scaling import Scalings

_WEIGHT, _BIAS = ".weight", ".bias"
#: Where wrappers of a decoder keep it, in names of their class.
_TEXT_PART = ("model.language_model.", "language_model.model.", "language_model.")
_OTHER_MODEL = "the adapter was trained for another model: name its base with --base MODEL"


def with_adapter(
    folder: Path, parameters: Mapping[str, Tensor], conversion: Conversion | None, part_of: str
) -> tuple[Mapping[str, Tensor], list[str]]:
    """The parameters of the model in ``folder``, merged with the adapter there, if there is one.

    Args:
        folder: The model's.
        parameters: Of the base, by the names of the class's.
        conversion: Of the class.
        part_of: The class that the decoder is a part of; empty where it is none.

    Returns:
        The parameters, and what the user should know.

    Raises:
        InputError: The adapter does not fit the base, or is damaged.
        UnsupportedError: It changes something that is not merged.
    """
    if not (folder / ADAPTER).is_dir():
        return parameters, []
    if conversion is None:
        raise UnsupportedError("an adapter of a class that transformers does not know")
    settings = read_adapter_config(folder / ADAPTER)
    scalings = Scalings(settings, str(folder / ADAPTER))
    file = weights_of(folder / ADAPTER)
    names = _Names(conversion, file, part_of)
    tensors = adapter_tensors(file)
    found = dict(parameters)
    _untie(found, conversion, tensors, names)
    for name, whole in tensors.whole.items():
        if (target := names.parameter(name)) is not None:
            found[target] = Renamed(target, whole)
    for module, own in tensors.modules.items():
        if (target := names.module(module)) is not None:
            _merge(found, target, own, settings, scalings, conversion)
    return found, names.notes()


class _Names:
    """Names of an adapter as those of the class, which may be part of the one it was trained on."""

    def __init__(self, conversion: Conversion, file: Path, part_of: str) -> None:
        self._conversion, self._file, self._part_of = conversion, file, part_of
        self._left_out = set[str]()

    def parameter(self, name: str) -> str | None:
        """The class's parameter; None of another part of the model.

        Raises:
            InputError: It has none.
        """
        shapes = self._conversion.shapes
        inner = [name.replace(part, own, 1) for part in _TEXT_PART if name.startswith(part)
                 for own in ("model.", "")]  # fmt: skip
        for one in (name, *(inner if self._part_of else ())):
            for found in (one, class_name(one, self._conversion)):
                if found in shapes:
                    return found
        if self._part_of and not inner:
            self._left_out.add(name)
            return None
        raise InputError(
            f"it changes {name}, which the base has not",
            where=str(self._file),
            hint=_OTHER_MODEL,
        )

    def module(self, name: str) -> str | None:
        """As `parameter`, of a module with a weight."""
        found = self.parameter(name + _WEIGHT)
        return None if found is None else found.removesuffix(_WEIGHT)

    def notes(self) -> list[str]:
        """Warnings for the user."""
        count = len(self._left_out)
        if not count:
            return []
        return [f"the adapter's changes to {count} parameters of other parts are left out"]


def _untie(
    found: dict[str, Tensor], conversion: Conversion, tensors: AdapterTensors, names: _Names
) -> None:
    """Give a head of its own to a model whose embedding alone, or whose head alone, is changed.

    PEFT computes so with an adapter that is not merged. Rows of single tokens change both.
    """
    changed = {names.parameter(name) for name in tensors.whole}
    changed |= {
        names.parameter(name + _WEIGHT)
        for name, own in tensors.modules.items()
        if own.tokens is None
    }
    tied = conversion.model._tied_weights_keys
    for pair in tied.items() if isinstance(tied, Mapping) else ():
        if changed.isdisjoint(pair):
            continue
        stored = next((found[name] for name in pair if name in found), None)
        for name in pair:
            if stored is not None and name not in found:
                found[name] = Renamed(name, stored)


def _merge(
    found: dict[str, Tensor],
    module: str,
    own: ModuleTensors,
    settings: Mapping[str, Any],
    scalings: Scalings,
    conversion: Conversion,
) -> None:
    name, bias = module + _WEIGHT, module + _BIAS
    part = found.get(name)
    if part is None or len(part.shape) != 2:
        raise UnsupportedError(
            "the adapter changes what is no matrix of a linear layer or an embedding", where=name
        )
    if own.tokens is not None:
        found[name] = _with_tokens(part, module, own.tokens, settings)
        return
    if own.down is None or own.up is None:
        raise InputError(f"{module} lacks lora_A or lora_B", where=part.where)
    turned = isinstance(conversion.model.get_submodule(module), Conv1D) or _is_embedding(own)
    rank = own.down.shape[0]
    wanted = [(own.up.shape[0], rank), (rank, own.down.shape[-1])]
    n, k = reversed(part.shape) if turned else part.shape
    if wanted != [(n, rank), (rank, k)] or own.up.shape != wanted[0]:
        raise InputError(
            f"{module}: lora_A {list(own.down.shape)} and lora_B {list(own.up.shape)} do not fit a "
            f"layer [{n}, {k}]",
            where=own.down.where,
            hint=_OTHER_MODEL,
        )
    scaling = scalings.of(module, rank)
    found[name] = LowRank(name, part, own.down, own.up, scaling, turned, own.magnitude)
    if own.up_bias is not None:
        if bias not in found:
            raise UnsupportedError(
                "lora_bias=True: the layer has no bias that it could be added to",
                where=own.up_bias.where,
            )
        found[bias] = Added(bias, found[bias], own.up_bias, scaling)


def _is_embedding(own: ModuleTensors) -> bool:
    return own.down is not None and "lora_embedding_A" in own.down.name


def _with_tokens(part: Tensor, module: str, tokens: Tensor, settings: Mapping[str, Any]) -> Rows:
    stated = settings.get("trainable_token_indices")
    if isinstance(stated, Mapping):
        stated = next((v for k, v in stated.items() if f".{module}".endswith(f".{k}")), None)
    whole = isinstance(stated, list) and all(
        type(one) is int and abs(one) < 1 << 63 for one in stated
    )
    if not whole or len(stated or ()) != tokens.shape[0] or part.shape[1:] != tokens.shape[1:]:
        raise InputError(
            f"{module}: trainable_token_indices names other tokens than there are rows",
            where=tokens.where,
            hint=_OTHER_MODEL,
        )
    index = np.array(stated, np.int64)
    if len(index) and not 0 <= index.min() <= index.max() < part.shape[0]:
        raise InputError(
            f"{module}: trainable_token_indices names a token that the base has not",
            where=tokens.where,
            hint=_OTHER_MODEL,
        )
    return Rows(part.name, part, tokens, index)
