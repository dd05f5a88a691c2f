"""Tensors of GGUF files say what the gguf package says, by whatever box they are read."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from optc.errors import InputError, UnsupportedError
from optc.importer.gguf.file import files_of, open_gguf, read_gguf
from optc.importer.gguf.grids import read_tile
from optc.importer.gguf.tensor import GgufTensor
from optc.ir.quantized_rows import dequantize_rows
from tests.support.checkpoints.gguf_files import quantized

RANDOM = np.random.default_rng(0)
GRIDS = {Kind.Q8_0: 8, Kind.Q4_0: 4, Kind.Q5_0: 8, Kind.MXFP4: 8, Kind.Q4_1: 4, Kind.Q4_K: 4}
#: Those with minimums, and by what share of a weight the product of two scales is rounded.
MINIMUMS = {Kind.Q4_1: 3e-7, Kind.Q4_K: 2**-10}
OTHERS = (Kind.Q5_1, Kind.BF16, Kind.F16, Kind.F32)
EXPERTS = RANDOM.standard_normal((3, 4, 64)).astype(np.float32)


def write(file: Path, tensors: dict[str, tuple[np.ndarray, Kind]]) -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    for name, (array, kind) in tensors.items():
        if kind in (Kind.F32, Kind.F16):
            writer.add_tensor(name, array.astype({Kind.F32: "<f4", Kind.F16: "<f2"}[kind]))
        else:
            writer.add_tensor(name, quantized(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def read(file: Path) -> dict[str, GgufTensor]:
    return read_gguf([file])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = RANDOM.standard_normal((5, 512)).astype(np.float32)
    rows[2] = 0
    tensors = {kind.name: (rows, kind) for kind in (*GRIDS, *OTHERS)}
    tensors["vector"] = (rows[0], Kind.F32)
    tensors["experts"] = (EXPERTS, Kind.Q8_0)
    return write(tmp_path_factory.mktemp("gguf") / "m.gguf", tensors)


@pytest.mark.parametrize("kind", [*GRIDS, *OTHERS], ids=lambda kind: kind.name)
def test_numbers_are_those_of_the_package(kind: Kind, file: Path) -> None:
    tensor = read(file)[kind.name]
    reader = {one.name: one for one in open_gguf(file).tensors}[kind.name]
    expected = np.asarray(dequantize(reader.data, kind), np.float32)
    assert (tensor.shape, tensor.dtype) == ((5, 512), kind.name)
    np.testing.assert_array_equal(tensor.read_rows(0, 5), expected)
    np.testing.assert_array_equal(tensor.read_rows(1, 4), expected[1:4])
    np.testing.assert_array_equal(tensor.read_box(((2, 5), (7, 40))), expected[2:5, 7:40])
    given = tensor.given
    if kind in (Kind.BF16, Kind.F16, Kind.F32):
        assert given is None
        return
    assert given is not None
    assert given.label == kind.name
    if kind not in GRIDS:
        assert given.rows is None
        return
    assert given.rows is not None
    floats = kind in MINIMUMS
    assert (given.rows.bits, given.rows.group_size) == (GRIDS[kind], 32)
    assert (given.rows.symmetric, given.rows.float_zeros) == (not floats, floats)
    most = MINIMUMS.get(kind, 0) * np.abs(expected).max()
    np.testing.assert_allclose(given.rows.floats(1, 5), expected[1:5], rtol=0, atol=most)
    values = given.rows.read(0, 5).values
    assert values.dtype == (np.uint8 if floats else np.int8)
    assert abs(values.astype(int)).max() <= (15 if floats else 1 << (GRIDS[kind] - 1))
    scales = given.rows.read(0, 5).scales
    np.testing.assert_array_equal(scales, scales.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("scale", [0.0, 0.25, -0.25])
@pytest.mark.parametrize("minimum", [0.0, 3.0, -3.0])
def test_blocks_of_q4_1_of_any_scale_and_minimum(scale: float, minimum: float) -> None:
    """Blocks of equal weights, of weights of one sign, and of falling values."""
    blocks = RANDOM.integers(0, 256, (4, 20)).astype(np.uint8)
    blocks[:, :4] = np.array([scale, minimum], np.float16).view(np.uint8)
    tile = read_tile("Q4_1", blocks)
    assert np.isfinite(tile.zero_points).all()
    found, expected = dequantize_rows(tile, 32), dequantize(blocks, Kind.Q4_1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize(("scale", "minimum"), [(60000, 1), (1, 60000), (np.nan, 1), (1, np.inf)])
def test_a_grid_beyond_float16_is_refused(scale: float, minimum: float, tmp_path: Path) -> None:
    blocks = np.full((4, 144), 255, np.uint8)
    blocks[:, :4] = np.array([scale, minimum], np.float16).view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", blocks, raw_dtype=Kind.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    given = read(tmp_path / "m.gguf")["w"].given
    assert given is not None
    assert given.rows is not None
    with pytest.raises(InputError, match="NaN or infinities"):
        given.rows.read(0, 4)


def test_levels_of_iq4_nl_are_int8(tmp_path: Path) -> None:
    """The package has no quantizer of the type: every byte is a block of its own."""
    blocks = RANDOM.integers(0, 256, (4, 2 * 18)).astype(np.uint8)
    for at in (0, 18):
        blocks[:, at : at + 2] = np.array([0.5], np.float16).view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", blocks, raw_dtype=Kind.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = read(tmp_path / "m.gguf")["w"]
    np.testing.assert_array_equal(tensor.read_rows(0, 4), dequantize(blocks, Kind.IQ4_NL))


def test_vectors_and_experts(file: Path) -> None:
    found = read(file)
    vector = found["vector"]
    assert vector.shape == (512,)
    np.testing.assert_array_equal(vector.read_rows(3, 9), found["F32"].read_rows(0, 1)[0, 3:9])
    experts = found["experts"]
    assert experts.shape == (3, 4, 64)
    assert experts.given is not None
    whole = experts.read_rows(0, 3)
    assert experts.given.rows is not None
    np.testing.assert_array_equal(experts.given.rows.floats(3, 11), whole.reshape(12, 64)[3:11])
    assert np.abs(whole - EXPERTS).max() < 0.03
    box = ((1, 3), (2, 4), (5, 60))
    np.testing.assert_array_equal(experts.read_box(box), whole[1:3, 2:4, 5:60])


def test_damaged_files_are_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    damaged = tmp_path / "m.gguf"
    for content in (b"", b"GGUF", whole[:1000], b"XXXX" + whole[4:], whole[:-5000]):
        damaged.write_bytes(content)
        with pytest.raises(InputError, match=r"m\.gguf") as caught:
            read(damaged)
        assert str(damaged) in str(caught.value)


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    rows = np.ones((2, 32), np.float32)
    file = write(tmp_path / "m.gguf", {"w": (rows, Kind.Q8_0)})
    content = bytearray(file.read_bytes())
    tensor = read(file)["w"]
    content[tensor.offset : tensor.offset + 2] = np.array([np.nan], np.float16).tobytes()
    file.write_bytes(bytes(content))
    with pytest.raises(InputError, match="w: the weight holds NaN or infinities"):
        read(file)["w"].read_rows(0, 1)


def test_types_without_a_decoder_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", np.zeros((2, 4), np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match="w: tensors of type I32 cannot be decoded"):
        read(tmp_path / "m.gguf")


def test_all_parts_of_a_model_are_found(tmp_path: Path) -> None:
    names = [f"m-{i:05}-of-00002.gguf" for i in (1, 2)]
    rows = np.ones((1, 32), np.float32)
    for index, name in enumerate(names):
        write(tmp_path / name, {f"w{index}": (rows, Kind.F32)})
    files = files_of(tmp_path / names[0])
    assert [one.name for one in files] == names
    assert set(read_gguf(files)) == {"w0", "w1"}
    with pytest.raises(InputError, match="part 2 of a model"):
        files_of(tmp_path / names[1])
    with pytest.raises(InputError, match=r"w0: also in m-00001-of-00002\.gguf"):
        read_gguf([files[0], files[0]])
    (tmp_path / names[1]).unlink()
    with pytest.raises(InputError, match=r"part m-00002-of-00002\.gguf is missing"):
        files_of(tmp_path / names[0])
    assert files_of(tmp_path / "other.gguf") == [tmp_path / "other.gguf"]
