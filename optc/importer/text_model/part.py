"""The text part of a model that also takes images or sound: its configuration and its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.errors import InputError
from optc.importer.conversion.tensor import Tensor
from optc.importer.skeleton import Skeleton, decoder_class

_HEAD = "lm_head."


def text_config(config: PretrainedConfig) -> PretrainedConfig | None:
    """The configuration of a wrapper's decoder, where transformers has a class for it alone; None
    of a model that is no wrapper, or whose decoder has none.

    Raises:
        InputError: What should be the decoder's configuration is something else.
    """
    text = config.get_text_config(decoder=True)
    if not isinstance(text, PretrainedConfig):
        raise InputError(
            f"the text part's configuration is a {type(text).__name__}, not an object",
            where="config.json",
        )
    alone = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(text.model_type)
    if text is config or (alone is None and decoder_class(text) is None):
        return None
    if alone is not None and alone == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type):
        return None
    # the head belongs to the wrapper, whose configuration says whether it is the embedding
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", text.tie_word_embeddings)
    return text


def text_tensors(skeleton: Skeleton, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a wrapper's checkpoint that its decoder has, named as in the decoder's class.

    The decoder's embedding tells under which prefix a wrapper keeps it.

    Raises:
        InputError: No tensor, or more than one, is such an embedding.
    """
    ours, embedding = _embedding(skeleton)
    shape = skeleton.shapes[ours + embedding]
    found = [n for n, t in checkpoint.items() if n.endswith(embedding) and t.shape == shape]
    if len(found) != 1:
        held = ", ".join(found) or "nothing"
        raise InputError(
            f"where is the text part? Its embedding {list(shape)} may be {held}",
            where=embedding,
            hint="is config.json the one of these weights?",
        )
    theirs = found[0].removesuffix(embedding)
    inside = {n: t for n, t in checkpoint.items() if n.startswith(theirs) and _HEAD not in n}
    tensors = {ours + name.removeprefix(theirs): stored for name, stored in inside.items()}
    for name, stored in checkpoint.items():
        before, head, rest = name.partition(_HEAD)
        beside = before + ours == theirs  # the decoder lies in the wrapper with its head
        if head and (beside or before in ("", "language_model.", "model.language_model.")):
            tensors[head + rest] = stored
    return tensors


def _embedding(skeleton: Skeleton) -> tuple[str, str]:
    """Prefix and rest of the name of the decoder's embedding, its first parameter."""
    name = next(iter(skeleton.shapes))
    prefix, dot, rest = name.partition(".")
    return (prefix + dot, rest) if dot else ("", name)
