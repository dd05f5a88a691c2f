"""Python code of a model folder, wherever it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import dynamic_module_utils

from optc.errors import UnsupportedError
from optc.importer.remote_code import check_remote_code, never_ask

MAP = {"auto_map": {"AutoModel": "evil.Model"}}


@pytest.mark.parametrize(
    ("file", "value", "key"),
    [
        ("config.json", MAP, "auto_map"),
        ("config.json", {"text_config": MAP}, "text_config.auto_map"),
        ("config.json", {"parts": [{"a": MAP}]}, "parts.a.auto_map"),
        ("tokenizer_config.json", {"auto_map": ["evil.Slow", None]}, "auto_map"),
    ],
)
def test_file_and_key_are_named(file: str, value: Any, key: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(json.dumps(value))
    with pytest.raises(UnsupportedError) as caught:
        check_remote_code(tmp_path, allowed=False)
    assert caught.value.where == str(tmp_path / file)
    assert caught.value.message.startswith(f"{key} names Python code")
    assert "--allow-remote-code" in caught.value.hint
    check_remote_code(tmp_path, allowed=True)


def test_maps_that_name_nothing_are_fine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": None, "a": {"auto_map": {}}}))
    check_remote_code(tmp_path, allowed=False)


def test_transformers_refuses_where_it_would_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda text: pytest.fail("it asks"))
    monkeypatch.setattr(dynamic_module_utils, "TIME_OUT_REMOTE_CODE", 15)
    never_ask()
    with pytest.raises(ValueError, match="custom code"):
        dynamic_module_utils.resolve_trust_remote_code(None, "evil", False, True)
