"""The contents of an adapter's folder with its base, and the folders that are taken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from optc.errors import OptcError
from optc.importer.checkpoint import checkpoint_files
from optc.importer.folders.given_model import given_model
from optc.importer.model_folder import model_folder, model_name
from optc.importer.tokenizer_files import MORE_TEMPLATES
from tests.importer.adapted.adapters import llama, more_tokens, trained
from tests.importer.hub_server import hub


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter; its base lies beside it, with a tokenizer."""
    trained(llama(), tmp_path, target_modules=["q_proj"])
    write(tmp_path / "base", {"tokenizer.json": "base", "chat_template.jinja": "base"})
    return tmp_path / "adapter"


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def edit(folder: Path, **changes: object) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def refused(folder: Path, base: str | Path | None = None) -> OptcError:
    with pytest.raises(OptcError) as caught:
        model_folder(folder, base=base)
    return caught.value


def test_it_is_made_once_of_links(adapter: Path) -> None:
    made = model_folder(adapter)
    assert model_name(made) == "adapter"
    assert [file.resolve() for file in checkpoint_files(made)] == [
        (adapter.parent / "base/model.safetensors").resolve()
    ]
    assert (made / "model.safetensors").is_symlink()
    assert model_folder(adapter) == made
    edit(adapter, lora_alpha=99)
    assert model_folder(adapter) != made


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({}, {"tokenizer.json": "base", "chat_template.jinja": "base"}),
        ({"tokenizer.json": "own"}, {"tokenizer.json": "own", "chat_template.jinja": None}),
        (
            {"chat_template.jinja": "own"},
            {"tokenizer.json": "base", "chat_template.jinja": "own"},
        ),
        (
            {"tokenizer.model": "own", "generation_config.json": "own"},
            {"tokenizer.model": "own", "tokenizer.json": None, "generation_config.json": "own"},
        ),
        ({"vocab.json": "own", f"{MORE_TEMPLATES}/t.jinja": "own"}, {MORE_TEMPLATES: "folder"}),
    ],
)
def test_the_tokenizer_of_the_adapter_goes_first(
    own: dict[str, str], wanted: dict[str, str | None], adapter: Path
) -> None:
    write(adapter, own)
    made = model_folder(adapter)
    for name, text in wanted.items():
        place = made / name
        found = "folder" if place.is_dir() else place.read_text() if place.exists() else None
        assert found == text, name


def test_settings_that_stop_a_text_are_the_base_s_unless_the_adapter_has_some(
    adapter: Path,
) -> None:
    write(adapter, {"tokenizer.json": "own"})
    base = (adapter.parent / "base/generation_config.json").read_text()
    assert (model_folder(adapter) / "generation_config.json").read_text() == base


def test_more_tokens_are_in_the_config(tmp_path: Path) -> None:
    options = {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}
    trained(llama(), tmp_path, more_tokens, **options)
    config = json.loads((model_folder(tmp_path / "adapter") / "config.json").read_text())
    assert config["vocab_size"] == 102
    assert json.loads((tmp_path / "base/config.json").read_text())["vocab_size"] == 97


def test_a_base_beside_the_adapter(adapter: Path) -> None:
    edit(adapter, base_model_name_or_path="../base")
    assert (model_folder(adapter) / "config.json").is_file()


def test_another_base(adapter: Path, tmp_path: Path) -> None:
    (tmp_path / "base").rename(tmp_path / "moved")
    error = refused(adapter)
    assert str(tmp_path / "base") in str(error)
    assert error.message.startswith("the base that the adapter names: no such model folder")
    assert "or name the base: --base MODEL" in (error.hint or "")
    assert (model_folder(adapter, base=tmp_path / "moved") / "config.json").is_file()
    assert refused(adapter, tmp_path / "nowhere").message == "the base: no such model folder"


@pytest.mark.parametrize("base", [None, "", 3])
def test_no_base(base: object, adapter: Path) -> None:
    edit(adapter, base_model_name_or_path=base)
    error = refused(adapter)
    assert error.message == "the adapter does not say of which model it is"
    assert error.hint == "name it: --base MODEL"


def test_a_base_for_what_is_no_adapter(adapter: Path) -> None:
    base = adapter.parent / "base"
    assert refused(base, base).message == "a base is for an adapter by PEFT, which this is not"


def test_an_adapter_of_an_adapter(adapter: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    for file in adapter.iterdir():
        (second / file.name).write_bytes(file.read_bytes())
    edit(second, base_model_name_or_path=str(adapter))
    assert refused(second).message.startswith("the base is itself an adapter with its base")


def test_a_model_with_an_adapter_beside_is_the_model(adapter: Path) -> None:
    base = adapter.parent / "base"
    for file in adapter.glob("adapter_*"):
        (base / file.name).write_bytes(file.read_bytes())
    assert model_folder(base) == base


def test_a_config_beside_does_not_make_it_a_model(adapter: Path) -> None:
    write(adapter, {"config.json": (adapter.parent / "base/config.json").read_text()})
    assert model_folder(adapter) != adapter


def test_both_may_be_of_the_hub(adapter: Path, tmp_path: Path) -> None:
    edit(adapter, base_model_name_or_path="acme/base", revision="v1")
    with hub(adapter, tmp_path / "cache", base=adapter.parent / "base"):
        found = given_model("acme/tiny")
    assert found.hub is None
    assert checkpoint_files(found.folder)[0].is_file()
    assert model_name(found.folder) == "tiny"


def test_a_base_of_the_hub_that_is_not_there(adapter: Path, tmp_path: Path) -> None:
    edit(adapter, base_model_name_or_path="acme/base")
    with hub(adapter, tmp_path / "cache"):
        error = refused(adapter)
    assert error.where == "acme/base"
    assert "no such model on the Hugging Face Hub" in error.message
