"""Trained weights enter a model: by name and shape, rounded ones on the recipe's grid only."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from optc.errors import InputError
from optc.importer.additions.trained import digest_trained
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.trained.trained_weights import TrainedWeights
from optc.proof.reference.blockwise import BlockwiseReference
from tests.support.ir_text import f32, model_of, nodes_text
from tests.support.models import Dense, dense_model

DOWN = "0.down.weight"


def write(folder: Path, tensors: dict[str, np.ndarray], scheme: Scheme | None = None) -> Path:
    """A folder as training writes it; with a scheme, the rounded rows of ``0.down.weight`` too."""
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    grids = {}
    if scheme is not None:
        tile = quantize_rows(f32(32, 48), scheme)
        parts = {f"{DOWN}:{k}": v for k, v in tile._asdict().items() if v is not None}
        save_file(parts, folder / "codes.safetensors")
        grids[DOWN] = {
            "bits": scheme.bits,
            "group_size": scheme.group_size,
            "symmetric": scheme.symmetric,
            "integer_scales": scheme.integer_scales,
        }
    state = {"kind": "qat" if grids else "distill", "tensors": sorted(tensors), "rounded": grids}
    (folder / "training.json").write_text(json.dumps(state))
    return folder


def test_nodes_stay_and_values_change(tmp_path: Path) -> None:
    model = model_of(
        "g (float[B,S,3] x) => (float[B,S,2] y)", "y = MatMul (x, w)", {"w": f32(3, 2)}
    )
    before = nodes_text(model)
    rows = f32(2, 3, seed=7)
    report = TrainedWeights(str(write(tmp_path / "t", {"w": rows}))).run(model)
    assert nodes_text(model) == before == "y = MatMul (x, w)"
    assert report.details == {"tensor": 1}
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), rows.T)


def test_the_reference_computes_with_them_and_a_tie_stays(tmp_path: Path) -> None:
    shape, other = Dense(tied=True), dense_model(Dense(tied=True, seed=4))
    names = ("embed.weight", "0.q.weight", "final_norm.weight", DOWN)
    initializers = other.graph.initializers
    tensors = {
        name: np.ascontiguousarray(a.T if name[0] == "0" else a)
        for name in names
        for a in [initializers[name].const_value.numpy()]
    }
    folder = write(tmp_path / "t", tensors)
    model, wanted = dense_model(shape), dense_model(shape)
    TrainedWeights(str(folder), digest_trained(folder)).run(model)
    for name in (*names, "head.weight"):
        wanted.graph.initializers[name].const_value = initializers[name].const_value
    tokens = np.arange(14, dtype=np.int32).reshape(2, 7)
    got, expected = (BlockwiseReference(one, 1) for one in (model, wanted))
    np.testing.assert_array_equal(got.run(tokens), expected.run(tokens))
    embed, head = (model.graph.initializers[n].const_value for n in ("embed.weight", "head.weight"))
    assert embed.read_rows == head.read_rows


def test_rounded_rows_are_not_rounded_again(tmp_path: Path) -> None:
    scheme = Scheme(8, 0, True)
    folder = write(tmp_path / "t", {"final_norm.weight": f32(32)}, scheme)
    model = dense_model(Dense())
    pipeline = Pipeline((TrainedWeights(str(folder)), QuantizeWeights()))
    records = pipeline.run(model)
    assert records[0].report.details == {"tensor": 1, "rounded weight": 1}
    values = model.graph.initializers[f"{DOWN}.quantized"].const_value
    tile = quantize_rows(f32(32, 48), scheme)
    np.testing.assert_array_equal(values.numpy(), tile.values.T)
    assert dequantize_rows(tile, 0).shape == (32, 48)


def test_another_grid_shape_or_name_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {}, Scheme(8, 0, True))
    context = PassContext(later=(QuantizeWeights(bits=4, group_size=64, symmetric=False),))
    with pytest.raises(InputError, match="was trained as int8 per channel, the recipe takes int"):
        TrainedWeights(str(folder)).run(dense_model(Dense(inner=128)), context)
    with pytest.raises(InputError, match=r"0\.down\.weight was trained with another shape"):
        TrainedWeights(str(folder)).run(
            dense_model(Dense(inner=64)), PassContext(later=(QuantizeWeights(),))
        )
    with pytest.raises(InputError, match="no quantize-weights comes after it"):
        TrainedWeights(str(folder)).run(dense_model(Dense()))
    named = write(tmp_path / "n", {"none.weight": f32(3)})
    with pytest.raises(InputError, match=r"none\.weight was trained .*there is none .*compile the"):
        TrainedWeights(str(named)).run(dense_model(Dense()))
    wide = write(tmp_path / "w", {"0.q.weight": f32(3, 4)})
    with pytest.raises(InputError, match=r"with shape \[3, 4\], here it has \[32, 32\]"):
        TrainedWeights(str(wide)).run(dense_model(Dense()))


def test_a_folder_that_is_none_or_another(tmp_path: Path) -> None:
    model = dense_model(Dense())
    with pytest.raises(InputError, match="nothing says where the trained weights are"):
        TrainedWeights().requires(model)
    folder = write(tmp_path / "t", {"final_norm.weight": f32(32)})
    with pytest.raises(InputError, match="not those of the recipe's sha256"):
        TrainedWeights(str(folder), "00").requires(model)
    TrainedWeights(str(folder), digest_trained(folder)).requires(model)
    assert find_linears(model)
