"""Whatever stands in the place of a file that others made, one error says so, and soon."""

from __future__ import annotations

import ast
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.store.oci.credentials import basic_credentials
from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.manifest import digest_of, read_manifest_files
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.trust.keys import PublicKey
from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files
from optc.importer.gguf.file import open_gguf
from optc.importer.json_file import read_object
from optc.importer.pickled.child import tensors
from optc.importer.safetensors import read_header
from optc.importer.source_digest import digest_files
from optc.importer.tensors.onnx_source import import_onnx
from optc.importer.tensors.program import read_program
from optc.runtime.adapters.peft import read_peft
from optc.runtime.audio.wav import read_wav
from optc.runtime.executable.adapter_spec import AdapterSpec
from optc.runtime.text.tokenizer import read_tokenizer
from optc.system.foreign.errors import foreign_errors
from optc.system.foreign.file import is_file, open_file, read_file
from optc.system.sources.recognize import check_source
from tests.runtime.support.artifacts import write_artifact

ROOT = Path(__file__).parents[3]
#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 20.0


def hole(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def of(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


#: What may stand in the place of a file.
NASTY: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a hole": hole,
    "a loop": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: None,
    "empty": of(b""),
    "no UTF-8": of(b'{"a": "\xff\xfe"}'),
    "deep": of(b"[" * 100_000),
    "deep objects": of(b'{"a":' * 100_000),
    "a list": of(b"[]"),
    "a number": of(b"7"),
    "null": of(b"null"),
    "half a pair": of(b'{"a": "\\ud800"}'),
    "digits": of(b"9" * 10_000),
}


def layout(folder: Path) -> Layout:
    reference = parse_reference(f"oci:{folder}:latest", "test")
    return Layout(reference, folder)


def blob_of(folder: Path) -> Path:
    """The place of a manifest in a layout whose index names it."""
    digest = digest_of(b"wanted")
    path = folder / "blobs" / "sha256" / digest.removeprefix("sha256:")
    path.parent.mkdir(parents=True)
    annotations = {"org.opencontainers.image.ref.name": "latest"}
    entry = {"digest": digest, "size": 6, "annotations": annotations}
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return path


def in_artifact(name: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = write_artifact(folder / "made").path / name
        path.unlink()
        return path

    return made


def beside_config(folder: Path) -> Path:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
    return folder / "adapter_model.safetensors"


def named(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder / name


#: Who reads files that others made: where the file lies in a new folder, and the reader of it.
READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "config": (named("config.json"), read_object),
    "index": (
        named("model.safetensors.index.json"),
        lambda path: checkpoint_files(path.parent),
    ),
    "safetensors": (named("model.safetensors"), read_header),
    "gguf": (named("model.gguf"), open_gguf),
    "tokenizer": (named("tokenizer.json"), read_tokenizer),
    "adapter's config": (
        named("adapter_config.json"),
        lambda path: read_peft(path.parent, AdapterSpec(1, 4, ())),
    ),
    "adapter's weights": (
        beside_config,
        lambda path: read_peft(path.parent, AdapterSpec(1, 4, ())),
    ),
    "artifact's manifest": (in_artifact("manifest.json"), lambda path: Artifact.open(path.parent)),
    "artifact's tokenizer": (
        in_artifact("tokenizer/tokenizer.json"),
        lambda path: Artifact.open(path.parents[1]),
    ),
    "layout's index": (named("index.json"), lambda path: layout(path.parent).manifest()),
    "layout's blob": (blob_of, lambda path: layout(path.parents[2]).manifest()),
    "key": (named("key.pem"), PublicKey.read),
    "pickled weights": (named("pytorch_model.bin"), tensors),
    "onnx": (named("m.onnx"), lambda path: import_onnx(path, "m")),
    "sound": (named("a.wav"), read_wav),
    "exported program": (named("m.pt2"), read_program),
}

#: Who looks at such a file only as far as it says what it is, and leaves the rest to the readers.
LOOKERS: dict[str, Callable[[Path], Path]] = {
    "model's config": named("config.json"),
    "model's weights": named("model.safetensors"),
    "adapter's config": named("adapter_config.json"),
    "GGUF": named("model.gguf"),
    "any file": named("file"),
}


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("reader", READERS)
def test_it_is_one_error(reader: str, nasty: str, tmp_path: Path) -> None:
    place, read = READERS[reader]
    path = place(tmp_path)
    NASTY[nasty](path)
    ended: list[BaseException | None] = []

    def call() -> None:
        try:
            read(path)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert ended, "it waits for ever"
    assert isinstance(ended[0], OptcError), ended[0]
    message = str(ended[0])
    assert len(message) < 1000
    assert message.isprintable()
    assert str(tmp_path) in message


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("looker", LOOKERS)
def test_who_looks_at_it_goes_on(looker: str, nasty: str, tmp_path: Path) -> None:
    path = LOOKERS[looker](tmp_path)
    NASTY[nasty](path)
    for given in (path, tmp_path):
        with suppress(OptcError):
            check_source(given)


@pytest.mark.parametrize("nasty", ["a pipe", "a device", "deep", "a list", "a number", "null"])
def test_a_name_and_password_are_one_error_too(
    nasty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    NASTY[nasty](tmp_path / "config.json")
    try:
        assert basic_credentials("host") == ""
    except InputError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017 - or there are none


def test_a_digest_reads_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(OSError, match="it is no regular file"):
        digest_files({"config.json": tmp_path / "config.json"})


@pytest.mark.parametrize(
    "title",
    ["manifest.json/inside", "a" * 256, "é" * 128, "/".join(["a" * 200] * 8), "a\0b", "../a", ""],
)
def test_titles_are_names_that_file_systems_take(title: str) -> None:
    titles = ["manifest.json", title]
    layers = [
        {
            "digest": digest_of(b""),
            "size": 0,
            "annotations": {"org.opencontainers.image.title": one},
        }
        for one in titles
    ]
    with pytest.raises(OptcError, match=r"manifest\.json|no path") as caught:
        read_manifest_files(json.dumps({"layers": layers}).encode(), "here")
    assert len(str(caught.value)) < 400


def test_what_a_package_raises_is_one_error() -> None:
    for error in (ValueError("a\nerror: forged"), MemoryError(), RecursionError("x"), Exception()):
        with pytest.raises(InputError) as caught, foreign_errors("file", "not read", "again"):
            raise error
        assert str(caught.value).startswith(f"file: not read: {type(error).__name__}")
        assert str(caught.value).isprintable()
        assert str(caught.value).endswith("(again)")
    with (
        pytest.raises(UnsupportedError, match="not read: NotImplementedError"),
        foreign_errors("file", "not read", unsupported=(NotImplementedError,)),
    ):
        raise NotImplementedError
    with pytest.raises(InputError, match=r"^mine$"), foreign_errors("file", "not read"):
        raise InputError("mine")
    with pytest.raises(KeyboardInterrupt), foreign_errors("file", "not read"):
        raise KeyboardInterrupt


def test_sizes_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"1234")
    link.symlink_to(path)
    assert read_file(path, 4) == read_file(link, 4) == b"1234"
    with pytest.raises(OSError, match="it has 4 bytes, more than the 3 that are read"):
        read_file(path, 3)
    with pytest.raises(OSError, match="Too many levels"):
        open_file(link, follow=False)
    assert is_file(path)
    assert not is_file(tmp_path / ("a" * 300))
    assert not is_file(tmp_path / "a\0b")


def test_a_bound_is_no_amount_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_file(path, 1 << 50) == b"1234", "Python would make room for all of it"


def test_a_file_that_says_no_size_is_read_to_its_end() -> None:
    listed = Path("/proc/self/status")
    assert listed.stat().st_size == 0
    assert read_file(listed).startswith(b"Name:")
    with pytest.raises(OSError, match="more than the 3 that are read"):
        read_file(listed, 3)


#: Modules of these folders read what others made; their other reads are of the system's files or
#: of what the program itself wrote.
FOREIGN = ("importer", "system/sources", "artifact", "runtime")
OWN = {
    "runtime/kv/kv_plan.py": "/proc and /sys",
    "runtime/speculative/planning/costs_cache.py": "a cache of this program's",
    "runtime/structured/trial.py": "/proc",
    "importer/families/survey.py": "a table of this package",
    "artifact/pages/page.py": "a style sheet of this package",
    "runtime/receipts/log_file.py": "a file that it makes",
    "importer/model_folder.py": "a reference of the Hub's own cache",
    "artifact/same_tokenizer.py": "files of artifacts that have been opened",
    "artifact/reservation.py": "a file that it makes",
    "artifact/patches/apply.py": "a file that it makes",
    "runtime/tensors/pictures.py": "bytes in memory, by Pillow",
    "artifact/store/oci/layout.py": "a file that is pushed",
    "artifact/store/oci/registry.py": "a file that is pushed",
    "artifact/store/oci/copying.py": "a file that it makes",
}


def test_a_new_reader_goes_through_the_frame() -> None:
    found = set()
    for folder in FOREIGN:
        for path in (ROOT / "optc" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                module = getattr(getattr(node.func, "value", None), "id", "")
                opens = name == "open" and module not in ("Artifact", "")
                if name in ("read_text", "read_bytes") or opens:
                    found.add(path.relative_to(ROOT / "optc").as_posix())
    assert found <= set(OWN), "read by optc.system.foreign.file"
