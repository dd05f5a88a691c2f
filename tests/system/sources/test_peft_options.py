"""Every option of PEFT's, and every initialization, with PEFT itself as the oracle."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftType, get_peft_model

from optc.errors import InputError, UnsupportedError
from optc.system.sources.peft_options import _HARMLESS, _MERGED, check_mergeable, check_options

#: Options of LoraConfig that change what is computed.
CHANGING = {
    "alora_invocation_tokens": [1],
    "arrow_config": {"top_k": 2},
    "bias": "lora_only",
    "kasa_config": {"beta": 0.1},
    "layer_replication": [[0, 2]],
    "lora_bias": True,
    "modules_to_save": ["lm_head"],
    "monteclora_config": {"samples": 2},
    "target_parameters": ["experts.up"],
    "trainable_token_indices": [3],
    "use_bdlora": {"nblocks": 2},
    "use_dora": True,
    "use_qalora": True,
    "velora_config": {"num_groups": 2},
}
#: Initializations that PEFT cannot do here: they want data or another package.
WITH_DATA = ("corda", "loftq", "lora_ga")


def _initializations() -> list[object]:
    hint = typing.get_type_hints(LoraConfig)["init_lora_weights"]
    named = [v for part in typing.get_args(hint) for v in typing.get_args(part)]
    named = [name.replace("[number of iters]", "4") for name in named]
    return [True, False, "OLoRA", "Gaussian", "lora_ga", *named]


def test_every_option_of_peft_is_known() -> None:
    known = _HARMLESS | CHANGING.keys()
    assert {field.name for field in fields(LoraConfig)} <= known


def test_peft_s_defaults_are_taken() -> None:
    check_options(LoraConfig().to_dict(), "file")
    check_options({"peft_type": "LORA", "next_years_option": None}, "file")


@pytest.mark.parametrize(("option", "value"), [*CHANGING.items(), ("next_years_option", 2)])
def test_options_that_change_what_is_computed(option: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        check_options({"peft_type": "LORA", option: value}, "file")
    assert caught.value.message == f"{option}={value!r} is not served"


@pytest.mark.parametrize(("option", "value"), [*CHANGING.items(), ("next_years_option", 2)])
def test_options_that_a_merge_follows(option: str, value: Any) -> None:
    """`tests/importer/adapted/test_merge.py` merges with each of these."""
    config = {"peft_type": "LORA", option: value}
    if option in _MERGED:
        check_mergeable(config, "file")
        return
    with pytest.raises(UnsupportedError) as caught:
        check_mergeable(config, "file")
    assert caught.value.message == f"{option}={value!r} is not merged"
    assert "merge_and_unload" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", [one.value for one in PeftType] + [None, 3])
def test_only_lora_is_merged(kind: object) -> None:
    if kind == "LORA":
        check_mergeable({"peft_type": kind}, "file")
        return
    with pytest.raises(UnsupportedError, match=f"an adapter of the kind {kind}, which optc does"):
        check_mergeable({"peft_type": kind}, "file")


@pytest.mark.parametrize("start", _initializations())
def test_initializations_are_taken_that_leave_the_base_alone(start: Any) -> None:
    """An adapter's A and B fit the weights that PEFT trained them on."""
    try:
        check_options({"peft_type": "LORA", "init_lora_weights": start}, "file")
        taken = True
    except InputError:
        taken = False
    assert taken == (start not in WITH_DATA and _base_is_left_alone(start))


def _base_is_left_alone(start: Any) -> bool:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False))
    before = model[0].weight.detach().clone()
    options = LoraConfig(target_modules=["0"], r=2, init_lora_weights=start)
    adapted = get_peft_model(model, options)  # type: ignore[arg-type]
    base = adapted.base_model.model[0].base_layer  # type: ignore[index,union-attr]
    return torch.equal(before, base.weight)  # type: ignore[arg-type,union-attr]


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_16", "next_years", 3])
def test_the_conversion_is_named(start: object) -> None:
    with pytest.raises(InputError):
        check_mergeable({"peft_type": "LORA", "init_lora_weights": start}, "file")
    with pytest.raises(InputError) as caught:
        check_options({"init_lora_weights": start}, "file")
    assert caught.value.where == "file"
    assert caught.value.message == (
        f"init_lora_weights={start!r}: the adapter was trained on a base whose weights that "
        "initialization changed"
    )
    assert "path_initial_model_for_weight_conversion" in (caught.value.hint or "")
