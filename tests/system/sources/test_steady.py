"""Files of a model that change while it is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from optc.errors import InputError
from optc.system.sources.steady import check_steady, steady


def _rewrite(file: Path) -> None:
    file.write_bytes(b"longer than before")


def _replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def _touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


CHANGES: dict[str, Callable[[Path], None]] = {
    "changed in place": _rewrite,
    "another file of its name": _replace,
    "as long as before": _touch,
    "removed": Path.unlink,
}
#: By what is compiled, from the folder of all: the file that it is read from.
READ = {
    "m": ["m/config.json", "m/model-00001-of-00002.safetensors", "m/chat_template.jinja"],
    "m/model.gguf": ["m/model.gguf"],
    "m/big-00001-of-00002.gguf": ["m/big-00002-of-00002.gguf"],
    "m/graph.onnx": ["m/graph.onnx", "m/graph.onnx.data", "m/graph_weights.bin"],
    "text.jsonl": ["text.jsonl"],
    "pipeline": ["pipeline/model_index.json", "pipeline/unet/model.safetensors"],
}
OTHERS = [
    "m/trainer_state.json",
    "m/checkpoint-5/model.safetensors",
    "m/graph2.onnx",
    "m/notes.txt",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*OTHERS, *(one for files in READ.values() for one in files)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"before")
    (tmp_path / "m/big-00001-of-00002.gguf").write_bytes(b"before")
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("given", "file"), [(k, one) for k, files in READ.items() for one in files]
)
def test_a_file_of_the_model_that_changes_is_told(
    folder: Path, given: str, file: str, change: str
) -> None:
    with steady([folder / given, None, "self:bits=2"]):
        check_steady()
        CHANGES[change](folder / file)
        with pytest.raises(InputError, match="while it was being read") as told:
            check_steady()
    assert told.value.where == str(folder / file)
    check_steady()  # nothing is compiled any more


@pytest.mark.parametrize("given", ["m", "m/graph.onnx"])
def test_other_files_beside_a_model_may_change(folder: Path, given: str) -> None:
    with steady([folder / given, "no/such", "\0", 5]):
        for name in OTHERS if given == "m/graph.onnx" else [*OTHERS[:2], OTHERS[3]]:
            _rewrite(folder / name)
        (folder / "m" / "new.safetensors").write_bytes(b"later")
        check_steady()
