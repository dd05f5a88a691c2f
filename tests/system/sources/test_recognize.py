"""Sources that are no models are named, with a hint, before any package is loaded."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gguf.constants import MODEL_ARCH_NAMES, GGUFType

from optc.cli.main import run
from optc.errors import InputError, OptcError
from optc.importer.import_model import import_model
from optc.system.sources.kind import Kind, matching, some
from optc.system.sources.kinds import (
    FILES,
    GGUF_TYPES,
    NO_DECODERS,
    OTHERS,
    REST,
    WEIGHTS,
    WITHOUT_CONFIG,
)
from optc.system.sources.recognize import check_source, missing_model, refusal_without_config

CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(**general: str) -> bytes:
    keys = b"".join(
        text(f"general.{k}") + struct.pack("<I", 8) + text(v) for k, v in general.items()
    )
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(general)) + keys


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def example(pattern: str) -> str:
    """A name that a pattern matches."""
    return pattern.replace("*", "x")


def files_of(kind: Kind, sign: str) -> dict[str, str]:
    return {example(name): "{}" for name in (sign, *kind.also)}


def refused(given: str | Path) -> OptcError:
    with pytest.raises(InputError) as caught:
        check_source(given)
    return caught.value


#: Folders, and what their message says.
FOLDERS: dict[str, tuple[dict[str, str | bytes], str]] = {
    "empty": ({}, "the folder is empty"),
    "one GGUF": ({"m.gguf": b"GGUF"}, "no config.json, but GGUF files (give the file itself: m."),
    "GGUFs": ({"a.gguf": "", "b.gguf": ""}, "give one of the files: a.gguf, b.gguf"),
    "adapter": (
        {"adapter_config.json": '{"peft_type": "PREFIX_TUNING"}', "adapter_model.bin": "x"},
        "an adapter of the kind PREFIX_TUNING, which optc does not merge",
    ),
    "adapter's settings": (
        {"adapter_config.json": '{"peft_type": "LORA"}'},
        "an adapter without adapter_model.safetensors",
    ),
    "adapter's pointer": (
        {"adapter_config.json": '{"peft_type": "LORA"}', "adapter_model.safetensors": POINTER},
        "a pointer of git-lfs",
    ),
    "adapter's weights": ({"adapter_model.bin": ""}, "without adapter_config.json"),
    "diffusers": ({"model_index.json": "{}", "unet/config.json": "{}"}, "a pipeline of diffusers"),
    "diffusers' part": ({"config.json": '{"_class_name": "UNet"}'}, "a pipeline of diffusers"),
    "timm": ({"config.json": '{"architecture": "vit", "num_classes": 2}'}, "a model of timm"),
    "TensorRT-LLM": ({"config.json": '{"pretrained_config": {}}'}, "a TensorRT-LLM engine"),
    "Keras": ({"config.json": '{"class_name": "G", "module": "k"}'}, "a model of Keras"),
    "models": ({"a/config.json": "{}", "b/config.json": "{}"}, "give one of them: a, b"),
    "trainer": (
        {"checkpoint-5/config.json": "{}", "runs/x": ""},
        "folders of models (give one of them: checkpoint-5)",
    ),
    "cache": ({"models--acme--tiny/": ""}, "give one of them: models--acme--tiny/"),
    "notes": ({"notes.md": ""}, "no config.json here, but notes.md"),
    "config alone": ({"config.json": CONFIG}, "no weights here, but a config.json"),
    "pointer": ({"config.json": CONFIG, "model.safetensors": POINTER}, "a pointer of git-lfs"),
    "pointers": ({"config.json": CONFIG, "pytorch_model.bin": POINTER}, "a pointer of git-lfs"),
    "pointed tokenizer": (
        {"config.json": CONFIG, "model.safetensors": "x", "tokenizer.json": POINTER},
        "tokenizer.json: a pointer of git-lfs",
    ),
    "pointed config": ({"config.json": POINTER}, "config.json: a pointer of git-lfs"),
    "page": ({"config.json": CONFIG, "m.safetensors": "<!DOCTYPE html>"}, "a web page"),
    "hole": ({"config.json": CONFIG, "model.safetensors": ""}, "the file is empty"),
    "TensorFlow": ({"config.json": CONFIG, "tf_model.h5": "x"}, "weights of TensorFlow: tf_model"),
    "Flax": ({"config.json": CONFIG, "flax_model.msgpack": "x"}, "weights of Flax"),
    "ONNX": ({"config.json": CONFIG, "onnx/model.onnx": "x"}, "an ONNX model: onnx/model.onnx"),
    "original": ({"config.json": CONFIG, "consolidated.00.pth": "x"}, "(consolidated)"),
    "other name": ({"config.json": CONFIG, "model.pt": "x"}, "under another name"),
}
#: Files, and what their message says.
SINGLE: dict[str, tuple[bytes, str]] = {
    "m.pt": (b"\x80\x04", "weights of PyTorch under another name"),
    "m.onnx": (b"x", "this is an ONNX model"),
    "m.safetensors": (b"x", "weights without config.json"),
    "config.json": (b"{}", "a file of a model's folder, and no model's folder (give"),
    "fp32.yaml": (b"x", "this is a recipe"),
    "m.zip": (b"x", "an archive"),
    "m.md": (b"x", "not a kind of model that optc imports"),
    "blob": (b"GGUF1234", "a GGUF file whose name does not end with .gguf"),
    "p.gguf": (POINTER.encode(), "a pointer of git-lfs"),
    "bert.gguf": (gguf(architecture="bert"), "a GGUF file of bert, an encoder, and no language"),
    "clip.gguf": (gguf(architecture="clip", type="mmproj"), "the part of a model that sees"),
    "lora.gguf": (gguf(type="adapter", architecture="llama"), "a LoRA adapter as GGUF"),
}
#: Names of no path, and what their message says.
NAMES = {
    "https://huggingface.co/acme/tiny": "of the Hugging Face Hub: acme/tiny)",
    "https://hf.co/acme/tiny/tree/v1": "of the Hugging Face Hub: acme/tiny@v1)",
    "huggingface.co/acme/tiny": "of the Hugging Face Hub: acme/tiny)",
    "hf:acme/tiny": "of the Hugging Face Hub: acme/tiny)",
    "hf://acme/tiny@v1": "of the Hugging Face Hub: acme/tiny@v1)",
    "https://example.org/m.gguf": "an address, from which optc downloads nothing (download",
    "s3://bucket/model": "an address, from which optc downloads nothing (download",
    "file:///models/tiny": "(give the path alone: /models/tiny)",
    "oci:layout": "'optc pull' takes an image layout",
    "ollama:llama3": "its folder or its GGUF file",
    "no-such-folder": "no such model folder (give a folder with config.json, or a GGUF file)",
    "a/b/c": "no such model folder",
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name: str, tmp_path: Path) -> None:
    files, message = FOLDERS[name]
    error = refused(write(tmp_path / "given", files))
    assert message in str(error)
    assert error.where.startswith(str(tmp_path / "given"))
    assert error.hint, "says what to do"


@pytest.mark.parametrize("name", SINGLE)
def test_files(name: str, tmp_path: Path) -> None:
    content, message = SINGLE[name]
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert message in str(error)
    assert error.where == str(tmp_path / name)
    assert error.hint, "says what to do"


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(name)
    assert NAMES[name] in str(error)
    assert error.where == name
    assert str(refused(Path(name))).count("://") == name.startswith(("http", "s3", "hf://"))


ALL = (*OTHERS, *WITHOUT_CONFIG, *WEIGHTS, *REST)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.what)
def test_every_sign_of_every_kind(kind: Kind, tmp_path: Path) -> None:
    for number, sign in enumerate(kind.signs):
        error = refused(write(tmp_path / str(number), files_of(kind, sign)))
        assert any(f"this is {one.what}: " in str(error) for one in ALL[: ALL.index(kind) + 1])
        assert error.hint
    first = [str(refused(tmp_path / str(number))) for number in range(len(kind.signs))]
    assert any(f"this is {kind.what}: " in one for one in first), "an earlier kind hides it"


@pytest.mark.parametrize("kind", WEIGHTS, ids=lambda kind: kind.what)
def test_weights_beside_a_config(kind: Kind, tmp_path: Path) -> None:
    files = {**files_of(kind, kind.signs[0]), "config.json": CONFIG}
    error = refused(write(tmp_path / "given", files))
    assert f"this is {kind.what}: " in str(error)
    (tmp_path / "given/pytorch_model.bin").write_bytes(b"weights")
    check_source(tmp_path / "given")
    (tmp_path / "given/model.safetensors").write_text("weights")
    (tmp_path / "given/pytorch_model.bin").write_bytes(b"")
    check_source(tmp_path / "given")


@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind.what)
def test_every_kind_of_file(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / example(kind.signs[0])
    path.write_text("{}")
    assert kind.what in str(refused(path))


def test_a_file_beside_its_config_names_the_folder(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": CONFIG, "model.safetensors": "weights"})
    assert refused(tmp_path / "model.safetensors").hint == f"give its folder: {tmp_path}"


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": CONFIG, "model.safetensors": "w"},
        {"config.json": CONFIG, "pytorch_model.bin": "w", "tf_model.h5": "w"},
        {"config.json": CONFIG, "m.gguf": "w"},
        {"config.json": "{", "model.safetensors": "w"},
        {"snapshots/abc/config.json": CONFIG},
    ],
)
def test_what_may_be_a_model_is_left_to_the_importer(files: dict[str, str], tmp_path: Path) -> None:
    check_source(write(tmp_path / "given", files))


def test_decoders_and_names_of_the_hub_pass(tmp_path: Path) -> None:
    for name, content in (
        ("llama", gguf(architecture="llama", type="model")),
        ("new", gguf(architecture="new")),
        ("cut", gguf(architecture="llama")[:30]),
        ("damaged", b"not"),
    ):
        (tmp_path / f"{name}.gguf").write_bytes(content)
        check_source(tmp_path / f"{name}.gguf")
    check_source("acme/tiny")
    check_source(Path("acme/tiny@v1"))


def test_a_link_to_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": CONFIG})
    (tmp_path / "model.safetensors").symlink_to("../blobs/gone")
    assert "a link to what is not there" in str(refused(tmp_path))


def test_architectures_are_those_of_the_package() -> None:
    named = {name for names in NO_DECODERS.values() for name in names}
    assert named <= set(MODEL_ARCH_NAMES.values()) | {"clip"}
    assert set(GGUF_TYPES) == {v for k, v in vars(GGUFType).items() if k.isupper()} - {"model"}


def test_names_match_as_in_a_shell() -> None:
    names = ["a/", "a/x.onnx", "x.onnx", "Tf_Model.h5"]
    assert matching(names, ("*.onnx",)) == ["x.onnx"]
    assert matching(names, ("*/*.onnx",)) == ["a/x.onnx"]
    assert matching(names, ("*/",)) == ["a/"]
    assert matching(names, ("tf_*.h5",)) == ["Tf_Model.h5"]
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_repositories_by_their_names() -> None:
    assert "an adapter by PEFT" in str(refusal_without_config("acme/x", ["adapter_model.bin"]))
    assert "GGUF files" in str(refusal_without_config("acme/x", ["x.gguf", "README.md"]))


def broken(kind: str) -> Callable[[Path], Path]:
    return lambda path: write(path, FOLDERS[kind][0])


@pytest.mark.parametrize("kind", ["empty", "adapter", "timm", "TensorFlow", "pointer"])
def test_functions_say_the_same(kind: str, tmp_path: Path) -> None:
    folder = broken(kind)(tmp_path / "given")
    said = str(refused(folder))
    with pytest.raises(InputError) as caught:
        import_model(folder)
    assert str(caught.value) == said


@pytest.mark.parametrize("command", ["compile", "plan", "distill", "qat"])
def test_commands(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, str(tmp_path)]) == 2
    assert f"error: {tmp_path}: the folder is empty" in capfd.readouterr().err
    assert not os.listdir(tmp_path)


def test_no_package_is_loaded_before(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'numpy', 'onnx_ir', 'yaml', 'rich', 'pydantic'):\n"
        "    sys.modules[name] = None\n"
        "from optc.cli.main import run\n"
        f"sys.exit(run(['plan', {str(tmp_path)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, "the folder is empty" in done.stderr) == (2, True), done.stderr


def test_an_id_of_the_hub_is_told_how_to_download() -> None:
    error = missing_model(Path("acme/tiny-1.5B"))
    assert str(error) == (
        "acme/tiny-1.5B: no such model folder (give a folder with config.json, or a GGUF file; if "
        "this is a model of the Hugging Face Hub, download it first: hf download acme/tiny-1.5B "
        "--local-dir tiny-1.5B)"
    )
    for path in ("tiny", "/acme/tiny", "a/b/c", "../tiny", "./"):
        assert "hf download" not in str(missing_model(Path(path)))
