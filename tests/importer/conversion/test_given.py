"""Grids of quantized tensors behind views: kept where rows stay rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.importer.conversion.reordered import Interleaved, Swapped
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Cut, Joined, Renamed, Stacked
from optc.ir.stacked_weights import StackedWeight
from tests.importer.conversion.arrays import ArrayTensor, whole
from tests.importer.quantized.files import gptq_layer, read

RANDOM = np.random.default_rng(0)


def experts(folder: Path) -> list[Tensor]:
    """Six matrices [8, 64] in 4 bits."""
    tensors = {
        f"{index}.{end}": array
        for index in range(6)
        for end, array in gptq_layer(
            RANDOM.standard_normal((8, 64)).astype(np.float32), 32, 4, symmetric=True
        )[0].items()
    }
    found = read(folder / "m", tensors, quant_method="gptq", bits=4, sym=True)
    return [found[f"{index}.weight"] for index in range(6)]


def test_experts_keep_the_grid_of_all_their_rows(tmp_path: Path) -> None:
    parts = experts(tmp_path)
    gate_up = Joined("v", [Stacked("gate", parts[:3]), Stacked("up", parts[3:])], 1)
    folded = StackedWeight(
        gate_up.read_box, (3, 16, 64), ir.DataType.FLOAT, "v", gate_up.given
    ).fold()
    assert folded.given is not None
    assert folded.given.rows is not None
    assert (folded.given.rows.rows, folded.given.rows.bits) == (48, 4)
    for start, stop in ((0, 48), (5, 30), (15, 17)):
        rows = folded.read_rows(start, stop)
        np.testing.assert_array_equal(folded.given.rows.floats(start, stop), rows)
        np.testing.assert_array_equal(rows, whole(gate_up).reshape(48, 64)[start:stop])


def test_rows_cut_out_keep_theirs(tmp_path: Path) -> None:
    first, second, *_ = experts(tmp_path)
    for view in (
        Renamed("v", first),
        Cut("v", first, 0, 2, 7),
        Joined("v", [first, second], 0),
        Cut("v", Stacked("s", [first, second]), 0, 1, 2),
    ):
        given = view.given
        assert given is not None
        assert given.rows is not None
        expected = whole(view).reshape(-1, 64)
        assert given.rows.rows == len(expected)
        np.testing.assert_array_equal(given.rows.floats(0, len(expected)), expected)


def test_others_keep_the_name_of_the_type_only(tmp_path: Path) -> None:
    first, second, *_ = experts(tmp_path)
    plain = ArrayTensor("p", np.ones((8, 64), np.float32))
    for view in (
        Swapped("v", first, (0, 1)),
        Cut("v", first, 1, 0, 32),
        Joined("v", [first, second], 1),
        Joined("v", [first, plain], 0),
        Interleaved("v", first, 0, inverse=False),
    ):
        given = view.given
        assert given is not None
        assert (given.label, given.rows) == ("gptq int4", None)
    assert Renamed("v", plain).given is None
