"""Encoder-decoders of transformers as two graphs: an encoder, and a step of the decoder.

Nothing here knows a class of models. Every decoder of transformers that attends to an encoder keeps
its keys and values in an `EncoderDecoderCache`. The first graph is the encoder and one call of the
decoder, whose results are the keys and values of the cache's cross half: what they do not need is
no part of the exported graph. The second one is a call of the decoder with both halves given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from optc.artifact.tasks.task import ENCODER, TARGET
from optc.errors import UnsupportedError
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.modules.dimensions import Dynamic
from optc.importer.tensors.program import import_module
from optc.ir.forms.decoder import Exported
from optc.system.sources.dim import Dim

#: Requests of a call.
_BATCH = Dim("batch", 1, 1024)
#: Tokens that the example's past has, and of the example's step.
_PAST, _STEP = 5, 3


@dataclass(frozen=True)
class ImportedEncoderDecoder:
    """Both graphs of an encoder-decoder of L layers.

    Attributes:
        encoder: Its inputs (``input_features`` f32[batch, …], or ``input_ids`` and
            ``attention_mask`` i64[batch, source]) to ``cross_0`` … ``cross_{2L-1}``: keys and
            values of each layer's cross attention, f32[batch, heads, positions, D].
        decoder: ``input_ids`` i64[batch, tokens], ``attention_mask`` where the encoder has one,
            ``past_0`` … f32[batch, heads, past, D] and ``cross_0`` … to ``logits``
            f32[batch, tokens, V] and ``past_0_out`` …, which have the tokens too.
        layers: L.
        export_step: Gives the decoder without a cache of its own, in the form
            `optc.ir.forms.decoder.Exported`, for steps over pools.
    """

    encoder: ImportedTensors
    decoder: ImportedTensors
    layers: int
    export_step: Callable[[], ir.Model]

    @property
    def by_role(self) -> dict[str, ImportedTensors]:
        """Both by the roles of their engines."""
        return {ENCODER: self.encoder, TARGET: self.decoder}


def import_encoder_decoder(
    model: Any,
    name: str,
    example: Sequence[torch.Tensor],
    most_tokens: int,
    source: Dim | None = None,
    step_tokens: int | None = None,
) -> ImportedEncoderDecoder:
    """Export both graphs.

    Args:
        model: Of transformers, an encoder-decoder in float32.
        name: Of the model.
        example: Of the encoder's inputs: features f32[batch, …], or ids and mask
            i64[batch, source].
        most_tokens: Tokens of a step, and of its past.
        source: Tokens of the encoder's input; None where it has always as many positions.
        step_tokens: Of a step at most; None are ``most_tokens``.

    Raises:
        UnsupportedError: Its decoder keeps another cache, or PyTorch cannot capture it.
    """
    features, *masks = example
    batch, mask = len(features), masks[0] if masks else None
    encoder = _Encoder(model) if mask is None else _TextEncoder(model)
    try:
        with torch.no_grad():
            cross = encoder(*example)["cross"]
            past = _step(model, _ids(batch, 1), _empty(cross), cross, mask)[1]
    except (AttributeError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise UnsupportedError(
            f"its decoder cannot be called with a cache of its own: {type(error).__name__}: "
            f"{str(error)[:200]}",
            where=name,
        ) from error
    if not past or len(past) != len(cross):
        raise UnsupportedError(
            "its decoder keeps no keys and values of its own and of its encoder", where=name
        )
    read = {0: _BATCH} if source is None else {0: _BATCH, 1: source}
    names = ("input_features",) if mask is None else ("input_ids", "attention_mask")
    first = import_module(encoder, name, tuple(example), {}, dict.fromkeys(names, read))
    shape = (batch, past[0].shape[1], _PAST, past[0].shape[3])
    examples = [torch.randn(shape, generator=_seeded()) for _ in past]
    step: Dynamic = {
        "input_ids": {0: _BATCH, 1: Dim("tokens", 1, step_tokens or most_tokens)},
        "past": {0: _BATCH, 2: Dim("past", 0, most_tokens)},
        "cross": {0: _BATCH} if source is None else {0: _BATCH, 2: source},
    }
    ids = _ids(batch, _STEP)
    if mask is None:
        second = import_module(_Decoder(model), name, (ids, examples, cross), {}, step)
    else:
        step = {**step, "attention_mask": read}
        args = (ids, mask, examples, cross)
        second = import_module(_MaskedDecoder(model), name, args, {}, step)

    def export_step() -> ir.Model:
        tokens = {0: _BATCH, 1: Dim("tokens", 1, most_tokens)}
        axes: Dynamic = {"input_ids": tokens, "cross": step["cross"]}
        whole = import_module(_DecoderAlone(model), name, (ids, cross), {}, axes).model
        Exported(0 if source is None else source.most).attach(whole)
        return whole

    return ImportedEncoderDecoder(first, second, len(past) // 2, export_step)


class _Half(torch.nn.Module):
    """Calls a model of transformers; exports go by the signatures of `forward`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class _Encoder(_Half):
    """The encoder's input to keys and values of cross attention."""

    def forward(self, input_features: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        return _cross(self.model, self.model.get_encoder()(input_features)[0])


class _TextEncoder(_Half):
    """The same of tokens, of which a mask says where a text has some."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, list[torch.Tensor]]:
        hidden = self.model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)[0]
        return _cross(self.model, hidden)


class _Decoder(_Half):
    """Tokens, and both halves of the cache, to logits and the half of the tokens."""

    def forward(
        self, input_ids: torch.Tensor, past: list[torch.Tensor], cross: list[torch.Tensor]
    ) -> dict[str, Any]:
        logits, present = _step(self.model, input_ids, past, cross)
        return {"logits": logits, "past": present}


class _MaskedDecoder(_Half):
    """The same where texts of the encoder have several lengths."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past: list[torch.Tensor],
        cross: list[torch.Tensor],
    ) -> dict[str, Any]:
        logits, present = _step(self.model, input_ids, past, cross, attention_mask)
        return {"logits": logits, "past": present}


class _DecoderAlone(_Half):
    """All tokens of a text, and an encoder's half of the cache, to logits."""

    def forward(self, input_ids: torch.Tensor, cross: list[torch.Tensor]) -> dict[str, Any]:
        return {"logits": _step(self.model, input_ids, (), cross)[0]}


def _cross(model: Any, hidden: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """One call of the decoder fills the half of the cache that is the encoder's."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    ids = torch.zeros((hidden.shape[0], 1), dtype=torch.int64)
    model(
        encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
        decoder_input_ids=ids,
        past_key_values=cache,
        use_cache=True,
    )
    return {"cross": _flat(cache.cross_attention_cache)}


def _step(
    model: Any,
    ids: torch.Tensor,
    past: Sequence[torch.Tensor],
    cross: Sequence[torch.Tensor],
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    halves = DynamicCache(), DynamicCache()
    for half, tensors in zip(halves, (past, cross), strict=True):
        for layer in range(len(tensors) // 2):
            half.update(tensors[2 * layer], tensors[2 * layer + 1], layer)
    cache = EncoderDecoderCache(*halves)
    for layer in range(len(cross) // 2):
        cache.is_updated[layer] = True  # the encoder's states are not looked at any more
    width = model.get_decoder().config.hidden_size
    unread = torch.zeros((ids.shape[0], cross[0].shape[2], width))
    masked = {} if mask is None else {"attention_mask": mask}
    found = model(
        encoder_outputs=BaseModelOutput(last_hidden_state=unread),
        decoder_input_ids=ids,
        past_key_values=cache,
        use_cache=True,
        **masked,
    )
    return found.logits, _flat(cache.self_attention_cache)


def _flat(half: DynamicCache) -> list[torch.Tensor]:
    return [tensor for layer in half.layers for tensor in (layer.keys, layer.values)]


def _empty(cross: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A past without tokens; decoders have as many heads for both attentions."""
    return [tensor[:, :, :0] for tensor in cross]


def _ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.arange(batch * tokens).reshape(batch, tokens)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
