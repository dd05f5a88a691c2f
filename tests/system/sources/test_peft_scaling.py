"""Factors of adapters: PEFT is the oracle of what is taken, and the rest is one error, at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from optc.errors import InputError
from optc.system.sources.peft_scaling import Scalings


class Toy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("q_proj", "k_proj")})
            for _ in range(3)
        )


@pytest.mark.parametrize("stabilized", [False, True])
@pytest.mark.parametrize(
    "patterns",
    [
        {},
        {"q_proj": 3},
        {"layers.1.q_proj": 3, "q_proj": 5},
        {r"layers\.(0|2)\..*_proj": 2.5},
        {r"layers.\d+.k_proj": 7, ".*": 1},
        {"q_proj|k_proj": 9},
    ],
)
def test_as_in_peft(patterns: dict[str, float], stabilized: bool) -> None:
    config = LoraConfig(
        r=4,
        lora_alpha=6,
        alpha_pattern=patterns,
        use_rslora=stabilized,
        target_modules=["q_proj", "k_proj"],
    )
    found = Scalings(config.to_dict(), "file")  # type: ignore[no-untyped-call]
    model = get_peft_model(Toy(), config)
    layers = {
        name.removeprefix("base_model.model."): part.scaling["default"]
        for name, part in model.named_modules()
        if hasattr(part, "scaling")
    }
    assert len(layers) == 6
    assert {name: found.of(name, 4) for name in layers} == layers


ODD: list[Any] = [None, "x", "nan", math.nan, math.inf, 10**400, [], {}, [2], True]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("place", ["lora_alpha", "alpha_pattern"])
def test_what_is_no_factor_is_one_error(place: str, value: Any) -> None:
    config = {place: value if place == "lora_alpha" else {"q": value}}
    with pytest.raises(InputError, match=f"^file: {place} holds what is no finite number"):
        Scalings(config, "file")


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(a|a)+b", "((a+)b?)*c", ".*.*.*.*x", "a" * 201, "(", "[z-a]", "*", "a{2,1}"],
)
def test_patterns_that_are_none_or_never_end(pattern: str) -> None:
    with pytest.raises(InputError, match=r"never|without end|no regular expression") as caught:
        Scalings({"alpha_pattern": {pattern: 2}}, "file")
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("patterns", [["q"], "q", 3, dict.fromkeys(map(str, range(4097)), 1)])
def test_patterns_that_are_no_table(patterns: Any) -> None:
    with pytest.raises(InputError, match="no list of at most 4096 layers"):
        Scalings({"alpha_pattern": patterns}, "file")


def test_a_layer_that_no_pattern_is_tried_with() -> None:
    found = Scalings({"alpha_pattern": {"a.*b": 2}}, "file")
    assert found.of("a" * 200, 2) == 4
    for name, rank in (("a" * 201, 2), ("a", 0)):
        with pytest.raises(InputError, match=r"^file: aa?"):
            found.of(name, rank)
