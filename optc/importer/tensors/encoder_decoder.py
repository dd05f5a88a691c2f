"""Encoder-decoders of transformers as two graphs: an encoder, and a step of the decoder.

Nothing here knows a class of models. Every decoder of transformers that attends to an encoder keeps
its keys and values in an `EncoderDecoderCache`. The first graph is the encoder and one call of the
decoder, whose results are the keys and values of the cache's cross half: what they do not need is
no part of the exported graph. The second one is a call of the decoder with both halves given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from optc.errors import UnsupportedError
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.program import Dynamic, import_module
from optc.system.sources.dim import Dim

#: Requests of a call.
_BATCH = Dim("batch", 1, 1024)
#: Tokens that the example's past has, and of the example's step.
_PAST, _STEP = 5, 3


@dataclass(frozen=True)
class ImportedHalves:
    """Both graphs of an encoder-decoder of L layers.

    Attributes:
        encoder: ``input_features`` f32[batch, …] to ``cross_0`` … ``cross_{2L-1}``: keys and
            values of each layer's cross attention, f32[batch, heads, positions, D].
        decoder: ``input_ids`` i64[batch, tokens], ``past_0`` … f32[batch, heads, past, D] and
            ``cross_0`` … to ``logits`` f32[batch, tokens, V] and ``past_0_out`` …, which have the
            tokens too.
        layers: L.
    """

    encoder: ImportedTensors
    decoder: ImportedTensors
    layers: int


def import_halves(
    model: Any, name: str, features: torch.Tensor, most_tokens: int
) -> ImportedHalves:
    """Export both graphs.

    Args:
        model: Of transformers, an encoder-decoder in float32.
        name: Of the model.
        features: An example of the encoder's input f32[batch, …].
        most_tokens: Positions of the decoder.

    Raises:
        UnsupportedError: Its decoder keeps another cache, or PyTorch cannot capture it.
    """
    encoder = _Encoder(model)
    try:
        with torch.no_grad():
            cross = encoder(features)["cross"]
            past = _step(model, _ids(len(features), 1), _empty(cross), cross)[1]
    except (AttributeError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise UnsupportedError(
            f"its decoder cannot be called with a cache of its own: {type(error).__name__}: "
            f"{str(error)[:200]}",
            where=name,
        ) from error
    batched: Dynamic = {"input_features": {0: _BATCH}}
    first = import_module(encoder, name, (features,), {}, batched)
    shape = (len(features), past[0].shape[1], _PAST, past[0].shape[3])
    examples = [torch.randn(shape, generator=_seeded()) for _ in past]
    step: Dynamic = {
        "input_ids": {0: _BATCH, 1: Dim("tokens", 1, most_tokens)},
        "past": {0: _BATCH, 2: Dim("past", 0, most_tokens)},
        "cross": {0: _BATCH},
    }
    args = (_ids(len(features), _STEP), examples, cross)
    second = import_module(_Decoder(model), name, args, {}, step)
    return ImportedHalves(first, second, len(past) // 2)


class _Encoder(torch.nn.Module):
    """The encoder's input to keys and values of cross attention."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        hidden = self.model.get_encoder()(input_features)[0]
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        ids = torch.zeros((input_features.shape[0], 1), dtype=torch.int64)
        self.model(
            encoder_outputs=(hidden,),
            decoder_input_ids=ids,
            past_key_values=cache,
            use_cache=True,
        )
        return {"cross": _flat(cache.cross_attention_cache)}


class _Decoder(torch.nn.Module):
    """Tokens, and both halves of the cache, to logits and the half of the tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, past: list[torch.Tensor], cross: list[torch.Tensor]
    ) -> dict[str, Any]:
        logits, present = _step(self.model, input_ids, past, cross)
        return {"logits": logits, "past": present}


def _step(
    model: Any, ids: torch.Tensor, past: Sequence[torch.Tensor], cross: Sequence[torch.Tensor]
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
    found = model(
        encoder_outputs=(unread,), decoder_input_ids=ids, past_key_values=cache, use_cache=True
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
