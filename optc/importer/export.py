"""A transformers decoder becomes an ONNX graph without any weight being allocated.

The model is built and exported under fake tensors; parameters of the graph are named as in the
checkpoint and still empty. Buffers (rotary frequencies and the like) are small and computed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer import capture

OPSET = 23
IR_VERSION = 10
_PREFIX = "decoder."
_ROPE_OF_LENGTH = ("dynamic", "longrope")


@dataclass
class Exported:
    """An exported graph whose weights are still missing.

    Attributes:
        model: The graph; initializers are named as parameters and buffers are in transformers.
        shapes: Shape of every parameter by name.
        tied: Parameter by the name of another that shares its memory.
        buffers: Values of the buffers by name.
        fixed_rope: The rotary frequencies depend on the length beyond the trained context, and
            were fixed to those within it.
    """

    model: ir.Model
    shapes: dict[str, tuple[int, ...]]
    tied: dict[str, str]
    buffers: dict[str, npt.NDArray[Any]]
    fixed_rope: bool = field(default=False)


class _Step(torch.nn.Module):
    """The decoder without cache: input_ids, position_ids [B, S] -> logits [B, S, V]."""

    def __init__(self, decoder: PreTrainedModel) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        result = self.decoder(input_ids=input_ids, position_ids=position_ids, use_cache=False)
        return result.logits


def export_decoder(config: PretrainedConfig, *, allow_remote_code: bool) -> Exported:
    """Export the decoder that ``config`` describes, weights left out.

    Raises:
        UnsupportedError: The decoder does something that cannot be captured.
    """
    table = capture.register()
    options = {
        "attn_implementation": capture.ATTENTION,
        "dtype": torch.float32,
        "trust_remote_code": allow_remote_code,
    }
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with _quiet():
        with torch.device("meta"):
            twin = _build(config, options)
        with fake:
            decoder = _build(config, options).eval()
        fixed = _fix_rope(decoder)
        with fake:
            model = _export(decoder, table)
    model.ir_version = IR_VERSION
    # stack traces of the exporter: large, and they hold paths of this machine
    ClearMetadataAndDocStringPass()(model)
    for value in list(model.graph.initializers.values()):
        if value.name and value.name.startswith(_PREFIX):
            value.name = value.name.removeprefix(_PREFIX)
    return Exported(
        model=model,
        shapes={name: tuple(p.shape) for name, p in twin.named_parameters(remove_duplicate=False)},
        tied=dict(twin.all_tied_weights_keys),
        buffers=_buffers(twin),
        fixed_rope=fixed,
    )


def _build(config: PretrainedConfig, options: dict[str, Any]) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_config(config, **options)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        raise InputError(
            f"transformers cannot build a {type(config).__name__} model: {first_line(error)}",
            where="config.json",
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or its type's name."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _reason(error: BaseException) -> BaseException:
    """What the exporter's exception was raised from: ours if there is one, else the first."""
    while error.__cause__ is not None and not isinstance(error, OptcError):
        error = error.__cause__
    return error


def _export(decoder: PreTrainedModel, table: dict[Any, Any]) -> ir.Model:
    ids = torch.zeros(2, 9, dtype=torch.int64)
    axes = {0: torch.export.Dim("B"), 1: torch.export.Dim("S")}
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                _Step(decoder).eval(),
                (ids, ids.clone()),
                dynamo=True,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
                input_names=["input_ids", "position_ids"],
                output_names=["logits"],
                dynamic_shapes={"input_ids": axes, "position_ids": axes},
                custom_translation_table=table,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = _reason(error)
        if isinstance(reason, OptcError):
            raise reason from error
        raise UnsupportedError(
            f"the model cannot be exported: {first_line(reason)}", where=type(decoder).__name__
        ) from error
    model: ir.Model = program.model
    return model


def _fix_rope(decoder: PreTrainedModel) -> bool:
    """Freeze rotary frequencies that would change with the length; true if there were any.

    Within the trained context, those that a module is built with are the ones it uses.
    """
    fixed = False
    for module in decoder.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, str) and kind in _ROPE_OF_LENGTH:
            module.rope_type = "default"
            fixed = True
        elif isinstance(kind, dict) and set(kind.values()) & set(_ROPE_OF_LENGTH):
            module.rope_type = dict.fromkeys(kind, "default")
            fixed = True
    return fixed


@torch.no_grad()
def _buffers(twin: PreTrainedModel) -> dict[str, npt.NDArray[Any]]:
    """Values of all non-persistent buffers of a model on the meta device.

    transformers computes them again in ``_init_weights`` when it loads a checkpoint, and so do
    we: each module's buffers become real and its parameters stay without memory.

    Raises:
        UnsupportedError: A buffer that ``_init_weights`` does not set.
    """
    values: dict[str, npt.NDArray[Any]] = {}
    for prefix, module in twin.named_modules():
        own = dict(module.named_buffers(prefix, recurse=False))
        if not own:
            continue
        for name, buffer in own.items():
            # NaN shows which buffers were left alone
            filled = torch.full(buffer.shape, float("nan") if buffer.is_floating_point() else 0)
            setattr(module, name.rsplit(".", 1)[-1], filled.to(buffer.dtype))
        twin._init_weights(module)
        for name, buffer in module.named_buffers(prefix, recurse=False):
            if buffer.isnan().any():
                raise UnsupportedError(
                    "a buffer that the model's class does not initialize", where=name
                )
            values[name] = np.asarray(buffer.numpy())
    return values


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes to developers of PyTorch off the user's terminal."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
