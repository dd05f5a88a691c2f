"""Models by name, from a local stand-in of the Hub's HTTP API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optc.errors import InputError, OptcError, UnavailableError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files
from optc.importer.hub import HubModel, hub_model, local_files, local_model
from optc.importer.model_folder import model_name
from tests.importer.hub_server import COMMIT, TOKEN, Hub, hub

FILES = {
    "config.json": "{}",
    "tokenizer.json": '{"model": 1}',
    "model.safetensors": "weights" * 1000,
    "modeling_tiny.py": "boom",
    "README.md": "# tiny",
    "pytorch_model.bin": "a pickle",
    "original/consolidated.safetensors": "twice",
    "onnx/config.json": "{}",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Hub]:
    for name, text in FILES.items():
        path = tmp_path / "served" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with hub(tmp_path / "served", tmp_path / "cache") as served:
        yield served


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


@pytest.mark.parametrize("revision", ["main", "v1", COMMIT])
def test_only_what_a_compile_reads_is_downloaded(server: Hub, revision: str) -> None:
    told: list[tuple[str, int, int]] = []
    model = HubModel("acme/tiny", revision)
    folder = model.fetch_small()
    assert sorted(server.taken) == names(folder) == ["config.json", "tokenizer.json"]
    model.fetch_weights(folder, lambda *where: told.append(where))
    assert names(folder) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_text() == FILES["model.safetensors"]
    assert (folder.name, model_name(folder)) == (COMMIT, "acme/tiny")
    assert {stage for stage, _, _ in told} == {"download model.safetensors, MiB"}
    count = len(server.taken)
    again = model.fetch_small()
    model.fetch_weights(again)
    assert (again, len(server.taken)) == (folder, count)


def test_code_is_downloaded_where_it_may_run(server: Hub) -> None:
    assert "modeling_tiny.py" in names(HubModel("acme/tiny", code=True).fetch_small())


def test_shards_are_those_of_the_index(server: Hub) -> None:
    for name in ("a", "b", "stray"):
        (server.folder / f"{name}.safetensors").write_text(name)
    index = {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "a.safetensors"}}
    (server.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    folder = local_model("acme/tiny@v1")
    assert [file.name for file in checkpoint_files(folder)] == ["model.safetensors"]
    (folder / "model.safetensors").unlink()
    (server.folder / "model.safetensors").unlink()
    folder = local_model("acme/tiny@v1")
    found = [name for name in names(folder) if name.endswith(".safetensors")]
    assert found == ["a.safetensors", "b.safetensors"]
    assert [file.name for file in checkpoint_files(folder)] == found


def test_weights_that_the_config_names(server: Hub) -> None:
    (server.folder / "config.json").write_text('{"transformers_weights": "b.safetensors"}')
    for name in ("a", "b"):
        (server.folder / f"{name}.safetensors").write_text(name)
    folder = local_model("acme/tiny")
    assert [name for name in names(folder) if "safetensors" in name] == ["b.safetensors"]


def test_an_index_cannot_name_other_places(server: Hub) -> None:
    index = {"weight_map": {"x": "../../evil.safetensors"}}
    (server.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (server.folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="is not a safetensors file of this folder"):
        local_model("acme/tiny")


def test_files_that_belong_to_a_model(server: Hub, tmp_path: Path) -> None:
    told: list[str] = []
    wanted = ("config.json", "model.safetensors", "absent.safetensors")
    folder = local_files(Path("acme/tiny@v1"), wanted, lambda stage, *_: told.append(stage))
    assert folder is not None
    assert sorted(server.taken) == names(folder) == ["config.json", "model.safetensors"]
    assert told == ["download acme/tiny@v1"]
    assert local_files(tmp_path, wanted) == tmp_path
    assert local_files(None, wanted) is None
    with pytest.raises(InputError, match=r"acme/none: .*no such model on the Hugging Face Hub"):
        local_files(Path("acme/none"), wanted)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("acme/gated", InputError, "accept its terms at https://huggingface.co/acme/gated"),
        ("acme/none", InputError, "no such model on the Hugging Face Hub (if it is private: 'hf"),
        ("acme/private", InputError, "no such model on the Hugging Face Hub"),
        ("acme/tiny@v9", InputError, "the model has no revision 'v9'"),
    ],
)
def test_what_the_hub_does_not_give(
    server: Hub, name: str, kind: type[OptcError], message: str
) -> None:
    with pytest.raises(kind) as raised:
        local_model(name)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{name}: ")


def test_a_token_opens_private_models(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert model_name(local_model("acme/private")) == "acme/private"


def test_pickles_come_after_safetensors(server: Hub) -> None:
    (server.folder / "model.safetensors").unlink()
    folder = local_model("acme/tiny")
    assert [file.name for file in checkpoint_files(folder)] == ["pytorch_model.bin"]


def test_shards_of_pickles(server: Hub) -> None:
    for name in ("model.safetensors", "pytorch_model.bin"):
        (server.folder / name).unlink()
    (server.folder / "b.bin").write_text("b")
    index = {"weight_map": {"x": "b.bin"}}
    (server.folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    folder = local_model("acme/tiny")
    assert [file.name for file in checkpoint_files(folder)] == ["b.bin"]


def test_weights_that_are_not_read(server: Hub) -> None:
    for name in ("model.safetensors", "pytorch_model.bin"):
        (server.folder / name).unlink()
    with pytest.raises(UnsupportedError, match=r"acme/tiny: this is weights .*original/consol"):
        local_model("acme/tiny")
    (server.folder / "tf_model.h5").write_text("x")
    (server.folder / "original/consolidated.safetensors").unlink()
    with pytest.raises(UnsupportedError, match=r"acme/tiny: this is weights of TensorFlow"):
        local_model("acme/tiny")


def test_a_model_of_another_format(server: Hub) -> None:
    (server.folder / "config.json").unlink()
    with pytest.raises(UnsupportedError, match=r"acme/tiny@v1: this is weights in the layout of"):
        HubModel("acme/tiny", "v1").fetch_small()
    (server.folder / "m-Q4.gguf").write_text("x")
    with pytest.raises(InputError, match=r"no config\.json, but GGUF files \(give the file itself"):
        HubModel("acme/tiny", "v1").fetch_small()


def test_without_a_network_the_cache_is_enough(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    folder = local_model("acme/tiny")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(server.taken)
    assert (local_model("acme/tiny"), len(server.taken)) == (folder, count)
    with pytest.raises(UnavailableError) as raised:
        local_model("acme/other")
    assert str(raised.value) == (
        "acme/other: no such model folder, the Hugging Face cache does not have the model, and "
        "HF_HUB_OFFLINE keeps optc off the Hub (unset HF_HUB_OFFLINE; or where there is a network: "
        "hf download acme/other --local-dir other; then give that folder)"
    )


def test_a_hub_that_is_gone(server: Hub) -> None:
    from huggingface_hub import constants

    constants.ENDPOINT = "http://127.0.0.1:9"  # restored by the fixture; nobody listens there
    with pytest.raises(UnavailableError) as raised:
        local_model("acme/tiny")
    assert "the Hub (http://127.0.0.1:9) cannot be reached" in str(raised.value)
    assert "(check the network and HF_ENDPOINT; or where there is a network: hf " in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("https://huggingface.co/acme/tiny", "of the Hugging Face Hub: acme/tiny"),
        ("https://hf.co/acme/tiny/", "of the Hugging Face Hub: acme/tiny"),
        ("http://huggingface.co/acme/tiny/tree/v1", "of the Hugging Face Hub: acme/tiny@v1"),
        ("huggingface.co/acme/tiny?library=x", "of the Hugging Face Hub: acme/tiny"),
        ("hf://acme/tiny", "of the Hugging Face Hub: acme/tiny"),
    ],
)
def test_the_address_of_a_page_is_no_name(given: str, hint: str) -> None:
    for path in (given, Path(given)):
        with pytest.raises(InputError) as raised:
            hub_model(path)
        assert (raised.value.message, raised.value.hint) == (
            "a model is named, not its page's address",
            hint,
        )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("acme/tiny", "acme/tiny"),
        ("acme/tiny@main", "acme/tiny"),
        ("acme/Tiny-1.5B@refs/pr/3", "acme/Tiny-1.5B@refs/pr/3"),
        ("present/typo", None),
        ("present", None),
        ("tiny", None),
        ("/acme/tiny", None),
        ("../tiny", None),
        ("a/b/c", None),
        ("acme/tiny@", None),
    ],
)
def test_names_and_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, name: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("present").mkdir()
    found = hub_model(Path(given))
    assert (None if found is None else str(found)) == name


def test_the_hub_is_not_imported_for_folders() -> None:
    code = "import optc.importer.hub, sys; optc.importer.hub.local_model('x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "huggingface_hub" not in done.stdout.split()


TAGS = {"X-Repo-Commit": COMMIT, "ETag": '"0123"'}
REVISION, CONFIG = "/revision/", "/config.json"
SIBLINGS = [{"rfilename": "config.json"}]


def said(value: object) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(value).encode(), {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        (REVISION, said({"id": "acme/tiny", "siblings": SIBLINGS})),
        (REVISION, said({"id": "acme/tiny", "sha": COMMIT, "siblings": None})),
        (REVISION, said({"id": "acme/tiny", "sha": COMMIT, "siblings": 7})),
        (REVISION, said({"id": "acme/tiny", "sha": 7, "siblings": SIBLINGS})),
        (REVISION, said([])),
        (REVISION, said(None)),
        (REVISION, (200, b"<html>log in</html>", {"Content-Type": "text/html"})),
        (REVISION, (200, b"[" * 100_000, {})),
        (REVISION, (500, b"", {})),
        (REVISION, (302, b"", {"Location": "/api/models/acme/tiny/revision/main"})),
        (CONFIG, (302, b"", {"Location": "/acme/tiny/resolve/main/config.json"})),
        (CONFIG, (200, b"{}", {})),
        (CONFIG, (200, b"{}", {**TAGS, "ETag": "a" * 5000})),
        (CONFIG, (200, b"{}", {**TAGS, "Content-Length": "many"})),
        (CONFIG, (200, b"{}", {**TAGS, "Content-Encoding": "gzip"})),
    ],
)
def test_what_no_hub_answers_is_one_error(
    server: Hub,
    part: str,
    answer: tuple[int, bytes, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries
    server.odd[part] = answer
    try:
        folder = HubModel("acme/tiny").fetch_small()
    except OptcError as error:
        message = str(error)
    else:
        assert (folder / "config.json").read_bytes() == b"{}", "a length that is right by chance"
        return
    assert message.startswith("acme/tiny: ")
    assert message.isprintable()
    assert len(message) < 1000
