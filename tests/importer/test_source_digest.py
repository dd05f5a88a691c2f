"""The digest of a model's files, and the look at every number of its weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from optc.errors import InputError
from optc.importer import source_digest
from optc.importer.safetensors import StoredTensor, read_header
from optc.importer.source_digest import digest_files, digest_source
from optc.system.progress import telling

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def test_digest_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"x" * (3 << 20))
    second.write_bytes(b"x" * (3 << 20))
    digest = digest_files({"a": first})
    assert digest == digest_files({"a": second})
    assert digest != digest_files({"b": first})
    assert digest_files({"a": first, "b": second}) == digest_files({"b": second, "a": first})
    second.write_bytes(b"x" * (3 << 20) + b"y")
    assert digest != digest_files({"a": second})


def looked_at(file: Path, *names: str) -> str:
    tensors = read_header(file)
    return digest_files({"m": file}, [tensors[name] for name in names or tensors])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_number_that_is_not_finite_is_named(
    dtype: torch.dtype, value: float, tmp_path: Path
) -> None:
    file = tmp_path / "m.safetensors"
    sound = {"a": torch.ones(5, 3, dtype=dtype), "norm": torch.full((7,), 3.0, dtype=dtype)}
    save_file(sound, file)
    plain = hashlib.sha256(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  m\n".encode())
    assert looked_at(file) == plain.hexdigest() == digest_files({"m": file})
    sound["norm"][6] = value
    save_file(sound, file)
    with pytest.raises(InputError, match="holds NaN or infinities") as caught:
        looked_at(file)
    assert caught.value.where == f"{file}: norm"
    assert looked_at(file, "a")  # what the model does not use may hold anything


@given(place=st.integers(0, 99), piece=st.sampled_from([8, 16, 64, 1 << 20]))
def test_pieces_hide_nothing(
    place: int, piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("pieces") / "m.safetensors"
    tensors = {"a": torch.ones(3, dtype=torch.float16), "b": torch.ones(100)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_digest, "_PIECE_BYTES", piece)
        save_file(tensors, file)
        assert looked_at(file) == digest_files({"m": file})
        tensors["b"][place] = float("nan")
        save_file(tensors, file)
        with pytest.raises(InputError, match="b: the weight holds NaN"):
            looked_at(file)


def test_float64_must_fit_float32(tmp_path: Path) -> None:
    """Weights are read as float32, where more than the largest becomes an infinity."""
    file, largest = tmp_path / "m.safetensors", float(np.finfo(np.float32).max)
    for value, finite in ((largest, True), (largest * (1 + 2**-26), True), (1e300, False)):
        save_file({"w": torch.tensor([1.0, -value], dtype=torch.float64)}, file)
        with np.errstate(over="ignore"):
            assert bool(np.isfinite(read_header(file)["w"].read_rows(0, 2)).all()) == finite
        if finite:
            looked_at(file)
        else:
            with pytest.raises(InputError, match="w: the weight holds NaN or infinities"):
                looked_at(file)


def test_empty_and_shared_tensors_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    save_file({"empty": torch.ones(0, 4), "w": torch.ones(2)}, file)
    assert looked_at(file, "w", "empty", "w") == digest_files({"m": file})


@given(
    parts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    place=st.integers(0, 9),
)
def test_tensors_that_share_bytes_are_all_looked_at(
    parts: list[tuple[int, int]], place: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("shared") / "m"
    numbers = np.ones(20, np.float32)
    numbers[place] = np.nan
    file.write_bytes(numbers.tobytes())
    views = [StoredTensor(file, "w", "F32", (size,), 4 * begin) for begin, size in parts]
    if any(begin <= place < begin + size for begin, size in parts):
        with pytest.raises(InputError, match="w: the weight holds NaN"):
            digest_files({"m": file}, views)
    else:
        assert digest_files({"m": file}, views) == digest_files({"m": file})


def test_what_is_stated_beside_the_config_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"w": torch.zeros(1)}, tmp_path / "model.safetensors")
    plain = digest_source(tmp_path)
    (tmp_path / "hf_quant_config.json").write_text("{}")
    assert digest_source(tmp_path) != plain


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_floats_of_8_bits_are_looked_at(code: int, tmp_path: Path) -> None:
    codes = torch.full((5,), 0x7E, dtype=torch.uint8)
    for last, damaged in ((0x7E, False), (code, True)):
        codes[-1] = last
        save_file({"w": codes.view(torch.float8_e4m3fn)}, tmp_path / "m")
        tensors = read_header(tmp_path / "m", every=True)
        if damaged:
            with pytest.raises(InputError, match="w: the weight holds NaN or infinities"):
                digest_files({"m": tmp_path / "m"}, tensors.values())
        else:
            digest_files({"m": tmp_path / "m"}, tensors.values())


def test_an_import_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_digest, "_TOLD_BYTES", 1 << 20)
    (tmp_path / "config.json").write_text("{}")
    save_file({"w": torch.zeros(5 << 18)}, tmp_path / "model.safetensors")
    told: list[tuple[str, int, int]] = []
    with telling(lambda *where: told.append(where)):
        digest_source(tmp_path, read_header(tmp_path / "model.safetensors").values())
        assert {(stage, total) for stage, _, total in told} == {("import", 5)}
        assert [done for _, done, _ in told] == [1, 2, 3, 4, 5]
        digest_files({"m": tmp_path / "model.safetensors"})
    assert len(told) == 5, "what is no import tells nothing"
