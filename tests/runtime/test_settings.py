"""`ServeSettings`: checked when built, and given on as keywords of `optc.load`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.runtime.settings import NAMES, ServeSettings
from optc.runtime.speculative.kinds import MAX_DRAFTED
from optc.system.options.option import options_of


def test_every_setting_is_documented() -> None:
    attributes = (ServeSettings.__doc__ or "").partition("Attributes:")[2].partition("Raises:")[0]
    documented = re.findall(r"^        (\w+): ", attributes, re.M)
    assert tuple(documented) == NAMES == tuple(f.name for f in fields(ServeSettings))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"threads": 0}, "threads: 0 is too few (at least 1)"),
        ({"token_budget": 0}, "token_budget: 0 is too few (at least 1)"),
        ({"max_sequences": -1}, "max_sequences: -1 is too few (at least 1)"),
        ({"prefill_chunk": 0}, "prefill_chunk: 0 is too few (at least 1)"),
        ({"max_drafted": 0}, "max_drafted: 0 is too few (at least 1)"),
        ({"max_sequences": "8"}, "max_sequences: '8' is no number (a whole number)"),
        ({"threads": True}, "threads: True is no number (a whole number)"),
        ({"kv_memory": "much"}, "kv_memory: 'much' is not a size"),
    ],
)
def test_what_no_engine_can_do_is_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError) as caught:
        ServeSettings(**changes)
    assert caught.value.render().startswith(error)


@pytest.mark.parametrize(
    "name", [*(n for n, o in options_of(ServeSettings).items() if o.kind == "count"), "max_waiting"]
)
def test_one_is_the_least_of_every_count(name: str) -> None:
    chosen: dict[str, Any] = {name: 1}
    assert getattr(ServeSettings(**chosen), name) == 1
    with pytest.raises(InputError, match=f"{name}: 0 is too few"):
        ServeSettings(**(chosen | {name: 0}))


def test_a_size_is_bytes_and_a_text_a_path() -> None:
    settings = ServeSettings(kv_memory="2GiB", draft="d")  # type: ignore[arg-type]
    assert (settings.kv_memory_bytes, settings.draft) == (2 << 30, Path("d"))
    assert ServeSettings(kv_memory=5).kv_memory_bytes == 5
    assert ServeSettings().kv_memory_bytes is None


def test_rows_of_a_step_are_those_of_the_engine_or_fewer() -> None:
    assert ServeSettings().step_rows(256) == 256
    assert ServeSettings(token_budget=64).step_rows(256) == 64
    assert ServeSettings(token_budget=512).step_rows(256) == 256


def test_what_differs_from_the_defaults_makes_equal_settings() -> None:
    assert ServeSettings().differing() == {}
    assert ServeSettings(max_drafted=MAX_DRAFTED, prefix_cache=True).differing() == {}
    changes = {"token_budget": 64, "speculate": "ngram", "max_drafted": 4, "prefix_cache": False}
    assert ServeSettings(**changes).differing() == changes


def test_defaults() -> None:
    """What is not None: an engine's own limits and all of its features but those that cost."""
    stated = {one.name: one.default for one in fields(ServeSettings) if one.default is not None}
    assert stated == {
        "prefix_cache": True,
        "prefix_eviction": "lru",
        "max_drafted": 16,
        "cost_cache": True,
        "generation_defaults": True,
        "verify": "full",
    }
