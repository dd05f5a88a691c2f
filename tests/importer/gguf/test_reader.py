"""Headers are read as by the package, but for the values of long lists, which take all memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from optc.importer.gguf import folder
from optc.importer.gguf.folder import gguf_folder, making_bytes
from optc.importer.gguf.reader import PlainReader, read_once

TOKENS = 50_000


def write(file: Path, tokens: int = TOKENS) -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(tokens)])
    writer.add_array("tokenizer.ggml.scores", [float(number) for number in range(tokens)])
    writer.add_array("llama.few", [1, 2, 3])
    writer.add_array("llama.words", ["a", "bc"])
    writer.add_uint32("llama.block_count", 2)
    writer.add_string("general.name", "last")
    writer.add_tensor("w", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.add_tensor("v", np.ones(3, np.float32))
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return file


@pytest.mark.parametrize("tokens", [2, 4096, 4097, TOKENS])
def test_all_but_long_lists_is_as_by_the_package(tokens: int, tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", tokens)
    ours, theirs = PlainReader(file), gguf.GGUFReader(file)
    assert list(ours.fields) == list(theirs.fields)
    for name, field in theirs.fields.items():
        whole = field.contents()
        left_out = isinstance(whole, list) and len(whole) > 4096
        assert ours.fields[name].types == field.types
        assert ours.fields[name].contents() == ([] if left_out else whole), name
    assert [
        (one.name, one.shape.tolist(), one.tensor_type, one.data_offset, one.n_bytes)
        for one in ours.tensors
    ] == [
        (one.name, one.shape.tolist(), one.tensor_type, one.data_offset, one.n_bytes)
        for one in theirs.tensors
    ]


def test_packages_read_a_file_once_and_see_all_of_it(tmp_path: Path) -> None:
    file, other = write(tmp_path / "m.gguf", 5000), write(tmp_path / "o.gguf", 3)
    theirs = gguf.GGUFReader(file)
    with read_once():
        ours = gguf.GGUFReader(str(file))
        assert gguf.GGUFReader(str(file)) is ours
        assert gguf.GGUFReader(str(other)) is not ours
        assert list(ours.fields) == list(theirs.fields)
        for name, field in theirs.fields.items():
            assert ours.fields[name].contents() == field.contents()
            # as transformers reads it
            for own, one in zip(ours.fields[name].parts, field.parts, strict=True):
                np.testing.assert_array_equal(own, one)
    with pytest.raises(KeyError), read_once():
        raise KeyError
    assert type(gguf.GGUFReader(file)) is type(theirs)


def test_a_vocabulary_takes_no_memory(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf")
    tracemalloc.start()
    try:
        PlainReader(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * TOKENS, "the package takes 1,000 bytes of a token"


def test_memory_is_predicted_by_the_vocabulary_until_the_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    file, small = write(tmp_path / "m.gguf"), write(tmp_path / "s.gguf", 10)
    assert making_bytes(file) - making_bytes(small) == 3000 * (TOKENS - 10)
    assert 250 << 20 < making_bytes(small) < 300 << 20
    monkeypatch.setattr(folder, "_fill", lambda made, _: (made / "config.json").write_text("{}"))
    gguf_folder(file)
    assert making_bytes(file) == 0
