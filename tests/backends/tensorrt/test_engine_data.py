from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backends.tensorrt import BACKEND
from optc.backends.tensorrt.engine_data import ENGINE_FILE, read_data
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine

PROFILE = {"name": "decode", "batch": 4, "rows": 1, "logits": 1}
DATA: dict[str, Any] = {
    "package": "tensorrt_rtx",
    "version": "1.7.1.116",
    "slot_length": 64,
    "profiles": [PROFILE],
    "inputs": ["tokens", "past_k.0"],
    "aliases": {"present_k.0": "past_k.0"},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"package": "x"}, r"package: expected text that matches \(tensorrt_rtx.tensorrt\)"),
        ({"version": 1}, "version: expected 'str', got 'int'"),
        ({"version": "newest"}, "version: expected text that matches "),
        ({"version": "1.7.1.116\n"}, "version: expected text that matches "),
        ({"slot_length": 0}, "slot_length: expected 'int' >= 1"),
        ({"profiles": []}, "profiles: expected 'array' of length >= 1"),
        ({"profiles": {}}, "profiles: expected 'array', got 'object'"),
        ({"profiles": [{**PROFILE, "rows": -1}]}, r"profiles\[0\].rows: expected 'int' >= 1"),
        ({"profiles": [{"name": "decode"}]}, r"profiles\[0\]: .*missing required field 'batch'"),
        ({"inputs": [1]}, r"inputs\[0\]: expected 'str', got 'int'"),
        ({"aliases": []}, "aliases: expected 'object', got 'array'"),
        ({"novelty": 1}, "object contains unknown field 'novelty'"),
        ({"aliases": {"present_k.0": "past_k.1"}}, "'aliases' names what is no input"),
    ],
)
def test_what_no_build_writes_is_refused(change: dict[str, Any], message: str) -> None:
    read_data(DATA)
    with pytest.raises(ArtifactError, match=message):
        read_data({**DATA, **change})


def test_the_engines_file_is_listed_and_an_engine(tmp_path: Path) -> None:
    engine = replace(toy_engine(), backend="tensorrt", data=DATA)
    entry = FileEntry(f"{engine.folder}/{ENGINE_FILE}", 3, "00" * 32)
    with pytest.raises(ArtifactError, match="which the manifest does not list"):
        BACKEND.check(engine, ArtifactFiles(tmp_path, []).of_engine(engine))
    (tmp_path / engine.folder).mkdir(parents=True)
    (tmp_path / entry.path).write_bytes(b"???")
    with pytest.raises(ArtifactError, match="is no TensorRT-RTX engine"):
        BACKEND.check(engine, ArtifactFiles(tmp_path, [entry]).of_engine(engine))
    other = replace(engine, data={**DATA, "package": "tensorrt", "version": "10.15.1"})
    BACKEND.check(other, ArtifactFiles(tmp_path, [entry]).of_engine(other))
