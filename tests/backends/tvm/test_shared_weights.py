"""An engine on the weights of another one: no file of its own but its code."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optc.backend import SharedWeights
from optc.backends.tvm import BACKEND
from optc.backends.tvm_cuda import BACKEND as CUDA_BACKEND
from optc.errors import ArtifactError, UnsupportedError
from optc.proof.roofline.costs import StepCosts
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import (
    FUSED,
    OPTIONS,
    SHAPE,
    Engine,
    EngineDriver,
    OracleDriver,
    build_first_layer,
)
from tests.support.families import model_after

GetEngine = Callable[[str], Engine]


def test_the_first_layers_run_on_the_targets_weights(engines: GetEngine, tmp_path: Path) -> None:
    built = engines("fp32")
    target = replace(built, folder=shutil.copytree(built.folder, tmp_path / "target"))
    made = build_first_layer(target, tmp_path / "self")
    assert made.build.files == ("engine.so",)
    assert [path.name for path in made.folder.iterdir()] == ["engine.so"]
    assert len(made.build.spec.layers) == 1
    both = [EngineDriver(target.load()), EngineDriver(made.load())]
    oracle = OracleDriver(made.model)
    rows = [{0: [5, 9, 2], 1: [7]}, {0: [1], 1: [3, 3]}]
    for step in rows:
        full, first = (driver.step(step) for driver in both)
        np.testing.assert_allclose(first, oracle.step(step), atol=1e-4)
        assert not np.allclose(first, full, atol=1e-2), "it is not the whole model"
    (tmp_path / "target" / "weights.bin").unlink()
    with pytest.raises(ArtifactError) as caught:
        made.load()
    assert caught.value.where == "weights.bin"


def test_targets_have_one_layout_of_weights(engines: GetEngine) -> None:
    """An engine for one instruction set computes with the weights file of another's."""
    mine, other = engines("int8"), engines("int8-v3")
    name = "weights.bin"
    assert filecmp.cmp(mine.folder / name, other.folder / name, shallow=False)
    assert mine.build.backend_data["weights"] == other.build.backend_data["weights"]
    shared = {**mine.build.backend_data, "shared": f"../{other.folder.name}"}
    drivers = [
        EngineDriver(mine.load()),
        EngineDriver(BACKEND.load(mine.folder, mine.build.spec, shared, 2)),
    ]
    rows = {0: [5, 9, 2], 1: [7]}
    np.testing.assert_array_equal(*(driver.step(rows) for driver in drivers))
    layouts = {BACKEND.weight_layout(parse_target(name)) for name in ("native", "x86-64-v3")}
    assert layouts == {CUDA_BACKEND.weight_layout(parse_target("sm_90"))}
    assert all(layouts)


def test_what_an_engine_holds_and_costs_is_known_before_it_is_built(engines: GetEngine) -> None:
    built = engines("int8")
    estimate = BACKEND.estimate(built.model, parse_target("native"), OPTIONS)
    assert estimate.spec == built.build.spec
    assert estimate.compile_s > 0
    assert estimate.costs == StepCosts.from_json(built.build.backend_data["costs"])
    padding = 64 * len(built.build.backend_data["weights"])
    assert 0 <= built.build.weight_bytes - estimate.weight_bytes <= padding


def test_weights_that_the_other_engine_lacks_are_named(tmp_path: Path) -> None:
    model = model_after(FUSED, SHAPE)
    options = replace(
        OPTIONS, shared=SharedWeights("../target", {"features": [], "ffi": "", "weights": []})
    )
    with pytest.raises(UnsupportedError, match="the other engine lacks"):
        BACKEND.build(model, parse_target("native"), tmp_path, options)
    assert not (tmp_path / "engine.so").exists()
