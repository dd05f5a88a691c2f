"""A transformers decoder becomes an ONNX graph without any weight being allocated.

The model is built and exported under fake tensors; parameters of the graph are named as in
transformers and have no values yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PretrainedConfig, PreTrainedModel

from optc.errors import OptcError, UnsupportedError
from optc.importer import capture
from optc.importer.capturing import experts as capture_experts
from optc.importer.capturing import recurrence_operators, recurrences
from optc.importer.capturing.expert_loops import unroll_loops
from optc.importer.decompose import light_decomposition
from optc.importer.skeleton import build_decoder, first_line
from optc.importer.tracing.complex_pairs import real_pairs
from optc.importer.tracing.kept_graphs import KeptGraph, pack, unpack
from optc.importer.tracing.shortcuts import known_results
from optc.system.logs.quiet import quiet

OPSET = 23
IR_VERSION = 10
_PREFIX = "decoder."
_FIXED = "fixed_rope"
_ROPE_OF_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True)
class Exported:
    """An exported graph whose weights are still missing.

    Attributes:
        model: The graph; initializers are named as parameters and buffers are in transformers.
        fixed_rope: The rotary frequencies depend on the length beyond the trained context, and
            were fixed to those within it.
    """

    model: ir.Model
    fixed_rope: bool


class _Step(torch.nn.Module):
    """The decoder without cache: input_ids, position_ids [B, S] -> logits [B, S, V]."""

    def __init__(self, decoder: PreTrainedModel) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        result = self.decoder(input_ids=input_ids, position_ids=position_ids, use_cache=False)
        return result.logits


def export_decoder(config: PretrainedConfig, *, allow_remote_code: bool) -> Exported:
    """The graph of the decoder that ``config`` describes, weights left out; from this user's cache
    if it was exported before.

    Raises:
        InputError: transformers refuses the config.
        UnsupportedError: The decoder does something that cannot be captured.
    """
    kept = KeptGraph(config)
    content = kept.read()
    if content is None:
        content = pack(_decoder(config, allow_remote_code))
        kept.write(content)
    # through its bytes in any case: then it is the same from the cache and not
    model = unpack(content)
    return Exported(model, model.metadata_props.pop(_FIXED, "") == _FIXED)


def _decoder(config: PretrainedConfig, allow_remote_code: bool) -> ir.Model:
    """The exported graph; in its metadata, whether rotary frequencies were fixed."""
    # one mode for building and exporting: fake tensors of two modes do not mix
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet():
        with fake, _no_values():
            decoder = build_decoder(config, allow_remote_code=allow_remote_code).eval()
        unroll_loops(decoder)
        fixed = _fix_rope(decoder)
        with fake:
            model = _export(decoder)
    model.ir_version = IR_VERSION
    # the exporter's stack traces: large, and they hold paths of this machine
    ClearMetadataAndDocStringPass()(model)
    for value in list(model.graph.initializers.values()):
        if value.name and value.name.startswith(_PREFIX):
            value.name = value.name.removeprefix(_PREFIX)
    model.metadata_props.update({_FIXED: _FIXED} if fixed else {})
    return model


@contextmanager
def _no_values() -> Iterator[None]:
    """While it lasts, weights of a model that is built get no starting values: fake tensors have
    none, and some classes read what they draw. Tied weights are tied."""
    initialize = PreTrainedModel.initialize_weights
    PreTrainedModel.initialize_weights = lambda _: None
    try:
        yield
    finally:
        PreTrainedModel.initialize_weights = initialize


def _export(decoder: PreTrainedModel) -> ir.Model:
    ids = torch.zeros(2, 9, dtype=torch.int64)
    axes = {0: torch.export.Dim("B"), 1: torch.export.Dim("S")}
    try:
        with (
            torch.no_grad(),
            light_decomposition(),
            known_results(),
            real_pairs(),
            recurrences.captured(decoder),
        ):
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
                custom_translation_table=capture.translations()
                | capture_experts.translations()
                | recurrence_operators.translations(),
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


def _reason(error: BaseException) -> BaseException:
    """The cause of the exporter's exception: ours if there is one, else the first."""
    while error.__cause__ is not None and not isinstance(error, OptcError):
        error = error.__cause__
    return error


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
