"""A decoder without weights: what parameters it has, which are shared, and its buffers' values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AttentionInterface,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.errors import InputError, UnsupportedError
from optc.importer import capture
from optc.importer.capturing import experts as capture_experts
from optc.importer.conversion.checkpoint import Conversion

#: Parameters that a decoder may have beside two for each tensor of its checkpoint.
_SLACK = 1000
#: Largest buffer that is computed: 256 MiB of float32.
_BUFFER_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Skeleton:
    """A decoder on torch's meta device, described.

    Attributes:
        shapes: Shape of every parameter by name.
        tied: Parameter by the name of another that shares its memory.
        buffers: Values of the buffers (rotary frequencies and the like) by name; of those that the
            class does not initialize, NaN.
        stored: Names of buffers that lie in checkpoints.
        conversion: How its checkpoints become its parameters; None if they are those.
    """

    shapes: dict[str, tuple[int, ...]]
    tied: dict[str, str]
    buffers: dict[str, npt.NDArray[Any]]
    stored: frozenset[str] = frozenset()
    conversion: Conversion | None = None


def build_decoder(config: PretrainedConfig, *, allow_remote_code: bool) -> PreTrainedModel:
    """The float32 decoder of ``config`` on the current device, experts and attention captured;
    attention is spelled out where its class does not go through transformers' interface.

    Raises:
        InputError: transformers refuses the config.
    """
    capture.register()
    capture_experts.register()
    options: dict[str, Any] = {
        "attn_implementation": attention_of(config),
        "experts_implementation": capture_experts.EXPERTS,
        "dtype": torch.float32,
    }
    found = None if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else decoder_class(config)
    try:
        if found is not None:
            return found._from_config(config, **options)
        return AutoModelForCausalLM.from_config(
            config, trust_remote_code=allow_remote_code, **options
        )
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
        AssertionError,
        ImportError,
    ) as error:
        raise InputError(
            f"transformers cannot build a model of {type(config).__name__}: {first_line(error)}",
            where="config.json",
        ) from error


def decoder_class(config: PretrainedConfig) -> type[PreTrainedModel] | None:
    """The class of transformers for the decoder of ``config``: that of its type or, where the type
    is of a part that has none, the one of the whole's package that is made of such a part."""
    known: type[PreTrainedModel] | None = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    package = type(config).__module__.rpartition(".")[0]
    if known is None and package.startswith(f"{transformers.__name__}.models."):
        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(package.rpartition(".")[2])
        found = getattr(transformers, str(name), None)
        if getattr(found, "config_class", None) is type(config):
            return found
    return known


def attention_of(config: PretrainedConfig) -> str:
    """The name of the attention implementation that a decoder is built with."""
    known = decoder_class(config)
    if known is None:  # code of the model folder
        return capture.ATTENTION
    names = vars(sys.modules[known.__module__]).values()
    if any(isinstance(value, AttentionInterface) for value in names):
        return capture.ATTENTION
    return "sdpa" if known._supports_sdpa else "eager"  # what transformers takes by itself


def read_skeleton(config: PretrainedConfig, tensors: int, *, allow_remote_code: bool) -> Skeleton:
    """Describe the decoder of ``config`` without allocating its parameters.

    Args:
        config: Of the decoder.
        tensors: How many the checkpoint holds: a decoder with many more parameters is not built
            to the end, since they could not all be matched.
        allow_remote_code: Whether Python code of the model folder may run.

    Raises:
        InputError: transformers refuses the config, or it asks for more than the checkpoint has.
        UnsupportedError: The decoder has a buffer whose value cannot be known.
    """
    with torch.device("meta"), _at_most(_SLACK + 2 * tensors):
        twin = build_decoder(config, allow_remote_code=allow_remote_code)
    shapes = {name: tuple(p.shape) for name, p in twin.named_parameters(remove_duplicate=False)}
    stored = frozenset(twin.state_dict().keys() - shapes.keys())
    return Skeleton(
        shapes=shapes,
        tied=dict(twin.all_tied_weights_keys),
        stored=stored,
        conversion=Conversion.of(twin),
        buffers=_buffers(twin, stored),
    )


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    """While it lasts, so many parameters of modules may be made in this process."""
    made = 0

    def count(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal made
        made += 1
        if made > parameters:
            raise InputError(
                f"the config calls for more than {parameters} parameters, which is far more than "
                "the checkpoint has tensors",
                where="config.json",
                hint="is it the config of these weights?",
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def _buffers(twin: PreTrainedModel, stored: frozenset[str]) -> dict[str, npt.NDArray[Any]]:
    """Values of the buffers of a model on the meta device; of those that lie in checkpoints
    (``stored``), what the class starts with, if anything.

    transformers computes them again in ``_init_weights`` when it loads a checkpoint, and so do
    we: each module's buffers become real and its parameters stay without memory. Some are computed
    by a module that holds the buffer's own.
    """
    values: dict[str, npt.NDArray[Any]] = {}
    _compute_buffers(twin)
    left = [name for name, buffer in twin.named_buffers() if buffer.isnan().any()]
    for prefix, module in reversed(list(twin.named_modules())):
        if any(name.startswith(f"{prefix}.") for name in left):
            _model_of(twin, prefix)._init_weights(module)
    for name, buffer in twin.named_buffers():
        if buffer.isnan().any() and name not in stored:
            raise UnsupportedError(
                "a buffer that the model's class does not initialize", where=name
            )
        values[name] = np.asarray(buffer.numpy())
    return values


def _compute_buffers(twin: PreTrainedModel) -> None:
    """Give the modules of a model on the meta device the buffers that they compute themselves.

    Raises:
        UnsupportedError: One is too large.
    """
    for prefix, module in twin.named_modules():
        own = dict(module.named_buffers(prefix, recurse=False))
        if not own:
            continue
        for name, buffer in own.items():
            if buffer.numel() > _BUFFER_ELEMENTS:
                raise UnsupportedError(
                    f"the model keeps a table of shape {list(buffer.shape)} that it computes",
                    where=name,
                    hint="are the sizes in config.json right?",
                )
            # NaN shows which buffers were left alone
            filled = torch.full(buffer.shape, float("nan") if buffer.is_floating_point() else 0)
            setattr(module, name.rsplit(".", 1)[-1], filled.to(buffer.dtype))
        _model_of(twin, prefix)._init_weights(module)


def _model_of(twin: PreTrainedModel, prefix: str) -> PreTrainedModel:
    """The innermost model that holds a module, or is it: transformers lets that one initialize it,
    and some read what they hold themselves."""
    found: PreTrainedModel = twin
    module: torch.nn.Module = twin
    for name in filter(None, prefix.split(".")):
        module = module.get_submodule(name)
        if isinstance(module, PreTrainedModel):
            found = module
    return found


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, with the next where it ends in a colon, or its type's
    name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])
