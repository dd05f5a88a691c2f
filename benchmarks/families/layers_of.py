"""The importer's answer to a type, by the kinds of its layers alone."""

from __future__ import annotations

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.families.encoders import UNMADE
from optc.errors import UnsupportedError
from optc.importer.text_model.layers import check_layers


def refused_layers(kind: str) -> str:
    """Why a type's default configuration is refused for its layers; empty where it is not.

    Args:
        kind: The ``model_type``.
    """
    if kind in UNMADE:
        return ""
    config = CONFIG_MAPPING[kind]().get_text_config()
    try:
        check_layers(config, str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]))
    except UnsupportedError as error:
        return f"{error.where}: {error.message}"
    return ""
