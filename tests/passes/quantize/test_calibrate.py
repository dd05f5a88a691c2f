from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc import registry
from optc.errors import InputError
from optc.gates.text import digest_text
from optc.ir.linear import find_linear
from optc.passes.quantize.calibrate import INPUT_RANGE, Calibrate
from optc.pipeline.pipeline import Pipeline
from tests.gates.models import V, dense_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(97 + i): i for i in range(26)}
    tokenizer = Tokenizer(models.WordLevel(letters | {"?": 26}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 30, "eos_token_id": [31]}))
    (tmp_path / "text.txt").write_text("thequickbrownfoxjumpsoverthelazydog" * 4)
    return tmp_path


def _pass(folder: Path, **options: object) -> Calibrate:
    return Calibrate(
        text=str(folder / "text.txt"),
        folder=str(folder),
        windows=3,
        window_tokens=16,
        **options,  # type: ignore[arg-type]
    )


def test_every_linear_layer_gets_the_range_of_its_input(folder: Path) -> None:
    assert V > 31
    model = dense_model(2)
    report = _pass(folder).run(model)
    linears = [linear for node in model.graph if (linear := find_linear(node))]
    assert report.count == len(linears) > 0
    assert report.facts["tokens"] == 3 * 16
    ranges = [float(one.initializer.metadata_props[INPUT_RANGE]) for one in linears]
    assert min(ranges) > 0
    assert max(ranges) == report.facts["largest_input"]["magnitude"]


def test_layers_of_one_input_have_one_range(folder: Path) -> None:
    model = dense_model(1)
    _pass(folder).run(model)
    by_input: dict[str, set[str]] = {}
    for node in model.graph:
        linear = find_linear(node)
        if linear is not None:
            known = linear.initializer.metadata_props[INPUT_RANGE]
            by_input.setdefault(str(linear.x.name), set()).add(known)
    assert all(len(found) == 1 for found in by_input.values())


def test_without_a_text_it_says_how_to_give_one() -> None:
    with pytest.raises(InputError, match="no text to calibrate with") as caught:
        Calibrate().requires(dense_model(1))
    assert "--calibration FILE" in caught.value.hint


def test_it_runs_on_the_dense_form_only(folder: Path) -> None:
    model = dense_model(1)
    Pipeline.parse("kv-cache", registry).run(model)
    with pytest.raises(InputError, match="not in dense form"):
        _pass(folder).requires(model)


def test_another_text_than_recorded_is_refused(folder: Path) -> None:
    digest = digest_text(folder / "text.txt")
    _pass(folder, sha256=digest).run(dense_model(1))
    with pytest.raises(InputError, match="not that of the recipe's sha256"):
        _pass(folder, sha256="0" * 64).run(dense_model(1))


def test_paths_are_not_recorded(folder: Path) -> None:
    assert _pass(folder).spec() == "calibrate{windows=3,window_tokens=16}"


@pytest.mark.parametrize("name", ["text.txt", "config.json", "tokenizer.json"])
def test_missing_files_are_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        _pass(folder).run(dense_model(1))
