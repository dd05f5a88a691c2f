"""The tensors of an adapter: which part of which module's change each of them is.

PEFT's names begin with ``base_model.model.``; behind that is the module's name in the class, and
then what the tensor is (``get_peft_model_state_dict``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from optc.errors import UnsupportedError
from optc.importer.checkpoint import read_tensors
from optc.importer.conversion.tensor import Tensor

_PREFIX = "base_model.model."
#: What a tensor is, by how its name ends; the name of the adapter may stand in it.
_ENDS = {
    "down": re.compile(r"\.lora_A(\.[^.]+)?\.weight$|\.lora_embedding_A(\.[^.]+)?$"),
    "up": re.compile(r"\.lora_B(\.[^.]+)?\.weight$|\.lora_embedding_B(\.[^.]+)?$"),
    "up_bias": re.compile(r"\.lora_B(\.[^.]+)?\.bias$"),
    "magnitude": re.compile(r"\.lora_magnitude_vector(\.[^.]+)?(\.weight)?$"),
    "tokens": re.compile(r"\.token_adapter\.trainable_tokens_delta(\.[^.]+)?$"),
}
#: What PEFT's wrappers put into names of whole tensors.
_WRAPPERS = re.compile(r"\.(base_layer|modules_to_save(\.[^.]+)?)(?=\.(weight|bias)$)")
#: What the base had where the adapter has a tensor of its own.
_REPLACED = ".original_module."
_OTHERS = re.compile(r"\.lora_|\.base_layer\.|\.token_adapter\.")
#: Modules whose rows are tokens, as the families call them.
_EMBEDDINGS = re.compile(r"(^|\.)(embed_tokens|wte|embed_in|word_embeddings|embedding)\.weight$")


@dataclass
class ModuleTensors:
    """The tensors of an adapter for one module; None where it lacks one.

    Attributes:
        down, up: A [r, K] and B [N, r]; of an embedding [r, V] and [D, r].
        up_bias: [N], which is added behind B.
        magnitude: Of DoRA [N], or of an embedding [D].
        tokens: Rows [n, D] that take the place of some of an embedding's.
    """

    down: Tensor | None = None
    up: Tensor | None = None
    up_bias: Tensor | None = None
    magnitude: Tensor | None = None
    tokens: Tensor | None = None


@dataclass
class AdapterTensors:
    """The tensors of an adapter.

    Attributes:
        modules: Of modules that it changes, by name.
        whole: Tensors that take the place of parameters, by the parameter's name.
    """

    modules: dict[str, ModuleTensors] = field(default_factory=dict)
    whole: dict[str, Tensor] = field(default_factory=dict)


def adapter_tensors(file: Path) -> AdapterTensors:
    """The contents of the file of an adapter's tensors.

    Raises:
        InputError: It is damaged.
        UnsupportedError: A tensor is none of those that are merged.
    """
    found = AdapterTensors()
    for key, tensor in read_tensors([file], None).items():
        name = key.removeprefix(_PREFIX)
        if _REPLACED in name:
            continue
        for part, end in _ENDS.items():
            if (match := end.search(name)) is not None:
                module = found.modules.setdefault(name[: match.start()], ModuleTensors())
                setattr(module, part, tensor)
                break
        else:
            found.whole[_whole(name, tensor)] = tensor
    return found


def _whole(name: str, tensor: Tensor) -> str:
    name = _WRAPPERS.sub("", name)
    if _OTHERS.search(name):
        raise UnsupportedError(
            "the tensor is none of those of LoRA that are merged",
            where=tensor.where,
            hint="if PEFT can, merge the adapter: merge_and_unload, then save_pretrained",
        )
    return name


def replaced_rows(tensors: AdapterTensors) -> int | None:
    """The rows of the embedding that the adapter brings; None where it keeps the base's."""
    whole: Mapping[str, Tensor] = tensors.whole
    found = (one.shape[0] for name, one in whole.items() if _EMBEDDINGS.search(name))
    return next(found, None)
