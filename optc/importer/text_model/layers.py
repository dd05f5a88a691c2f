"""Decoders with layers that carry a state are refused by their configuration, before the model is
built, and the kind of layer is named."""

from __future__ import annotations

from transformers import PretrainedConfig

from optc.errors import UnsupportedError
from optc.importer.capturing.recurrences import has_known

#: Kinds of layers by the names that configurations have for them, and what makes them others.
_OTHERS = {
    "hybrid": "carry a state from token to token beside attention",
    "hybrid_sliding": "carry a state from token to token beside attention",
    "linear_attention": "carry a state from token to token",
    "mamba": "carry a state from token to token",
    "recurrent": "carry a state from token to token",
}
#: Where configurations list the kinds of their layers.
_LISTS = ("layer_types", "layers_block_type", "block_types")
_HINT = (
    "optc takes decoders that attend, convolve, or have states of known kinds: 'optc families'"
    " lists their types"
)


def check_layers(config: PretrainedConfig, name: str) -> None:
    """Do nothing if all layers attend, convolve, or carry a state in a way that is known, as far as
    the configuration and its class say.

    Args:
        config: The decoder's.
        name: Of the model's class, for the message.

    Raises:
        UnsupportedError: Some layers are of another kind, or there are no heads.
    """
    if has_known(config):
        return
    kinds = [kind for names in _LISTS for kind in getattr(config, names, None) or ()]
    other = next((kind for kind in kinds if kind in _OTHERS), None)
    if other is not None:
        raise UnsupportedError(
            f"{name} has layers of the kind {other}, which {_OTHERS[other]}",
            where="config.json",
            hint=_HINT,
        )
    if not _has_heads(config):
        raise UnsupportedError(
            f"{name} states no attention heads: optc has no layers without, such as RWKV's",
            where="config.json",
            hint=_HINT,
        )


def _has_heads(config: PretrainedConfig) -> bool:
    """True if a configuration states a number of heads, for all layers or for some of them."""
    try:
        return getattr(config, "num_attention_heads", None) is not None
    except RuntimeError:  # each layer has its own
        return True
