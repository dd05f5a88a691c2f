"""A loaded engine with the weights of another artifact: its logits are, bit by bit, those of that
artifact loaded alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from optc.errors import ArtifactError
from optc.runtime.executable.executable import Float32, SwappingExecutable
from tests.backends.tvm.engine_driver import Engine, EngineDriver, build_first_layer

GetEngine = Callable[[str], Engine]
ROWS = {0: [3, 5, 8, 9, 2], 1: [7, 7, 1]}


def changed(engine: Engine, folder: Path) -> Path:
    """The engine with other weights: each tensor is its own turned around."""
    shutil.copytree(engine.folder, folder)
    path = folder / "weights.bin"
    data = bytearray(path.read_bytes())
    for one in engine.build.backend_data["weights"]:
        dtype = np.dtype(one["dtype"])
        count = int(np.prod(one["shape"]))
        values = np.frombuffer(data, dtype, count, one["offset"]).copy()
        data[one["offset"] : one["offset"] + values.nbytes] = values[::-1].tobytes()
    path.write_bytes(data)
    return folder


def logits(engine: Engine, folder: Path) -> Float32:
    executable = Engine(folder, engine.model, engine.build).load()
    try:
        return EngineDriver(executable).step(ROWS)
    finally:
        executable.close()


@pytest.mark.parametrize("name", ["fp32", "int4"])
def test_there_and_back(engines: GetEngine, tmp_path: Path, name: str) -> None:
    engine = engines(name)
    other = changed(engine, tmp_path / "other")
    expected = {path: logits(engine, path) for path in (engine.folder, other)}
    first, second = expected.values()
    assert not np.array_equal(first, second)
    executable = engine.load()
    assert isinstance(executable, SwappingExecutable)
    for path in (other, engine.folder, engine.folder, other):
        executable.use_weights(path)
        for _ in range(20):  # recorded, and replayed
            np.testing.assert_array_equal(EngineDriver(executable).step(ROWS), expected[path])
    executable.close()


def test_weights_of_another_engines_file(engines: GetEngine, tmp_path: Path) -> None:
    target = engines("fp32")
    shutil.copytree(target.folder, tmp_path / "a" / target.folder.name)
    beside = Engine(tmp_path / "a" / target.folder.name, target.model, target.build)
    draft = build_first_layer(beside, tmp_path / "a" / "draft")
    changed(target, tmp_path / "b" / target.folder.name)
    shutil.copytree(draft.folder, tmp_path / "b" / "draft")
    expected = logits(draft, tmp_path / "b" / "draft")
    executable = draft.load()
    assert isinstance(executable, SwappingExecutable)
    executable.use_weights(tmp_path / "b" / "draft")
    np.testing.assert_array_equal(EngineDriver(executable).step(ROWS), expected)
    executable.close()


@pytest.mark.parametrize("what", ["missing", "short"])
def test_weights_that_are_not_there_leave_the_old_ones(
    engines: GetEngine, tmp_path: Path, what: str
) -> None:
    engine = engines("fp32")
    if what == "short":
        (tmp_path / "weights.bin").write_bytes(b"few")
    expected = logits(engine, engine.folder)
    executable = engine.load()
    driver = EngineDriver(executable)
    assert isinstance(executable, SwappingExecutable)
    with pytest.raises(ArtifactError):
        executable.use_weights(tmp_path)
    np.testing.assert_array_equal(driver.step(ROWS), expected)
    executable.close()
