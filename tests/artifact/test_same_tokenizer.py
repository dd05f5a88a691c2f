from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc.artifact.same_tokenizer import tokenizer_difference
from optc.errors import ArtifactError

WHOLE = {"model": {"vocab": {"a": 0}}, "added_tokens": [], "normalizer": None, "padding": None}


def difference(folder: Path, other: object) -> str:
    for name, value in (("a", WHOLE), ("b", other)):
        (folder / name).write_text(json.dumps(value))
    return tokenizer_difference(folder / "a", folder / "b")


def test_only_what_ids_depend_on_counts(tmp_path: Path) -> None:
    assert difference(tmp_path, WHOLE) == ""
    assert difference(tmp_path, {**WHOLE, "padding": {"length": 8}}) == ""
    assert difference(tmp_path, {**WHOLE, "model": {"vocab": {"b": 0}}}) == "model"
    assert difference(tmp_path, {**WHOLE, "added_tokens": [1], "normalizer": 1}) == "added_tokens"
    without = {key: value for key, value in WHOLE.items() if key != "model"}
    assert difference(tmp_path, without) == "model"


def test_what_is_no_json_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not a JSON object"):
        difference(tmp_path, [])
