"""Options of a PEFT adapter: those that an engine follows, those that a merge follows, all others.

PEFT has new options with every version. One that is unknown here may change what the adapter's
tensors mean, so it is refused unless it is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.errors import InputError, UnsupportedError

#: Read by who reads the tensors, or of no matter once the adapter is trained: which layers it
#: adapts and with which rank stands in the tensors, and configurations of an initialization do
#: nothing without it.
_HARMLESS = frozenset(
    {
        "alpha_pattern",
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "ensure_weight_tying",
        "eva_config",
        "exclude_modules",
        "fan_in_fan_out",
        "inference_mode",
        "init_lora_weights",
        "layers_pattern",
        "layers_to_transform",
        "loftq_config",
        "lora_alpha",
        "lora_dropout",
        "lora_ga_config",
        "megatron_config",
        "megatron_core",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "rank_pattern",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
#: What a merge follows, and an engine that serves adapters does not.
_MERGED = frozenset({"bias", "lora_bias", "modules_to_save", "trainable_token_indices", "use_dora"})
#: Values that mean "not used", of every other option.
_OFF: tuple[object, ...] = (None, False, "none", [], {}, "")
#: Initializations that leave the base weights as they are. PiSSA, OLoRA, CorDA and LoRA-GA take
#: the first B A out of them, and LoftQ quantizes them, so A and B fit those other weights alone.
_OF_THE_SAME_BASE = (None, True, False, "gaussian", "eva", "orthogonal", "mica")


_MERGE_WITH_PEFT = (
    "if PEFT can, merge it: merge_and_unload, then save_pretrained of model and tokenizer; and "
    "compile that folder"
)


def check_options(config: Mapping[str, Any], where: str) -> None:
    """Refuse options that change what is computed.

    Args:
        config: adapter_config.json.
        where: The file's name, for messages.

    Raises:
        InputError: An option is used that the engine does not follow or that is unknown, or an
            initialization that changes the base's weights.
    """
    for option, value in config.items():
        if option not in _HARMLESS and value not in _OFF:
            raise InputError(
                f"{option}={value!r} is not served",
                where=where,
                hint="train the adapter without it, or compile the adapter's folder, which merges "
                "it with its base"
                if option in _MERGED
                else "train the adapter without it, or merge it before compiling",
            )
    _check_initialization(config, where)


def check_mergeable(config: Mapping[str, Any], where: str) -> None:
    """Refuse adapters that cannot be merged with their base exactly; arguments as of
    `check_options`.

    Raises:
        UnsupportedError: It is no LoRA, or uses an option that a merge does not follow or that is
            unknown.
        InputError: Its initialization changed the base's weights.
    """
    kind = config.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(
            f"an adapter of the kind {str(kind)[:100]}, which optc does not merge",
            where=where,
            hint=_MERGE_WITH_PEFT,
        )
    for option, value in config.items():
        if option not in _HARMLESS | _MERGED and value not in _OFF:
            raise UnsupportedError(
                f"{option}={value!r} is not merged", where=where, hint=_MERGE_WITH_PEFT
            )
    _check_initialization(config, where)


def _check_initialization(config: Mapping[str, Any], where: str) -> None:
    start = config.get("init_lora_weights")
    if (start.lower() if isinstance(start, str) else start) not in _OF_THE_SAME_BASE:
        raise InputError(
            f"init_lora_weights={start!r}: the adapter was trained on a base whose weights that "
            "initialization changed",
            where=where,
            hint="convert it with PEFT: save_pretrained(FOLDER, "
            "path_initial_model_for_weight_conversion=THE_UNTRAINED_ADAPTER); or merge it with "
            "PEFT before compiling",
        )
