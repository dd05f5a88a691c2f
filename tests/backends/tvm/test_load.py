"""Loading engines: what is checked before the first step, and what the process needs."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from optc.backends.tvm import BACKEND, runtime_libs
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.loaded import loader
from optc.errors import ArtifactError, InputError, UnavailableError
from optc.runtime.executable.executable import StepBatch
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import SHAPE, Engine, EngineDriver

GetEngine = Callable[[str], Engine]


def _copy(engine: Engine, folder: Path) -> Engine:
    for name in engine.build.files:
        shutil.copyfile(engine.folder / name, folder / name)
    return dataclasses.replace(engine, folder=folder)


def test_missing_cpu_features_are_named(
    engines: GetEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "host_features", lambda: frozenset({"avx2", "f16c"}))
    with pytest.raises(UnavailableError) as caught:
        engines("int8").load()
    lacked = sorted({*isa_of(parse_target("native")).features} - {"avx2", "f16c"})
    assert "fma" in lacked
    assert caught.value.message == (
        f"the engine was compiled for {', '.join(lacked)}, which this CPU lacks"
    )
    assert "--target" in caught.value.hint
    assert caught.value.exit_code == 3


def test_an_avx2_engine_asks_for_no_more(
    engines: GetEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "host_features", lambda: frozenset({"avx2", "fma", "f16c"}))
    executable = engines("int8-v3").load()
    assert executable.spec.vocab_size == SHAPE.vocab
    executable.close()


def test_another_release_of_the_runtime_is_refused(
    engines: GetEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_libs, "ffi_version", lambda: "0.2.0")
    with pytest.raises(UnavailableError, match=r"needs apache-tvm-ffi .*, installed is 0\.2\.0"):
        engines("fp32").load()


def test_missing_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_libs, "FFI_PACKAGE", "no-such-package")
    with pytest.raises(UnavailableError, match="no-such-package is not installed"):
        runtime_libs.ffi_version()


@pytest.mark.parametrize("name", ["engine.so", "weights.bin", "libtvm_runtime.so"])
def test_missing_files_are_named(engines: GetEngine, tmp_path: Path, name: str) -> None:
    engine = _copy(engines("fp32"), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ArtifactError, match="missing") as caught:
        engine.load()
    assert caught.value.where == name


def test_truncated_weights_are_refused(engines: GetEngine, tmp_path: Path) -> None:
    engine = _copy(engines("fp32"), tmp_path)
    size = (tmp_path / "weights.bin").stat().st_size
    os.truncate(tmp_path / "weights.bin", size // 2)
    with pytest.raises(ArtifactError, match=f"the file has {size // 2} bytes, its index needs"):
        engine.load()


def test_empty_weights_are_refused(engines: GetEngine, tmp_path: Path) -> None:
    engine = _copy(engines("fp32"), tmp_path)
    os.truncate(tmp_path / "weights.bin", 0)
    with pytest.raises(ArtifactError, match="the file has 0 bytes"):
        engine.load()


def test_a_damaged_engine_is_refused(engines: GetEngine, tmp_path: Path) -> None:
    engine = _copy(engines("fp32"), tmp_path)
    (tmp_path / "engine.so").write_bytes(b"not a library")
    with pytest.raises(ArtifactError, match="cannot open the engine") as caught:
        engine.load()
    assert caught.value.where == "engine.so"


def test_weights_cannot_be_written(engines: GetEngine) -> None:
    """The mapping is read-only: a stray write ends the process instead of changing weights."""
    engine = engines("fp32")
    script = (
        "import sys, pathlib\n"
        "from optc.backends.tvm.weights.weights_file import MappedWeights, Placed\n"
        "placed = [Placed('w', 'float32', (4,), 0)]\n"
        "MappedWeights(pathlib.Path(sys.argv[1]), placed).array('w')[0] = 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(engine.folder / "weights.bin")],
        capture_output=True,
        check=False,
    )
    assert done.returncode < 0


_LEAN_SCRIPT = """
import json, pickle, sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "tvm", "onnx", "onnx_ir", "transformers", "onnxscript"}:
            raise ImportError("forbidden: " + name)

sys.meta_path.insert(0, Forbidden())
import numpy as np
from pathlib import Path
from optc.backends.tvm import BACKEND
from optc.runtime.executable.executable import StepBatch
with open(sys.argv[1], "rb") as file:
    folder, spec, data = pickle.load(file)
engine = BACKEND.load(Path(folder), spec, data, 1)
engine.allocate_kv((1,) * len(spec.groups), 16)
groups, one = len(spec.groups), np.zeros(1, np.int32)
logits = engine.step(StepBatch(
    tokens=one, positions=one, slot_mapping=np.zeros((groups, 1), np.int32),
    query_starts=np.array([0, 1], np.int32), kv_lengths=np.ones((groups, 1), np.int32),
    block_tables=np.zeros((groups, 1, 1), np.int32), logit_rows=one))
print(json.dumps({"finite": bool(np.isfinite(logits).all()), "shape": logits.shape,
                  "torch": sys.modules.get("torch", 0) is not None and "torch" in sys.modules}))
"""


def test_loads_and_steps_without_the_compiler(engines: GetEngine, tmp_path: Path) -> None:
    import json
    import pickle

    engine = engines("fp32")
    argument = tmp_path / "engine.pickle"
    argument.write_bytes(
        pickle.dumps((str(engine.folder), engine.build.spec, engine.build.backend_data))
    )
    done = subprocess.run(
        [sys.executable, "-c", _LEAN_SCRIPT, str(argument)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"finite": True, "shape": [1, 128], "torch": False}


def test_importing_the_backend_loads_nothing_heavy() -> None:
    script = (
        "import sys, optc.backends.tvm\n"
        "print([m for m in ('tvm', 'tvm_ffi', 'torch', 'onnx_ir', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_preparing_imports_the_runtime_but_no_compiler() -> None:
    script = (
        "import sys; from optc.backends.tvm import BACKEND; BACKEND.prepare()\n"
        "print([m for m in ('tvm', 'tvm_ffi', 'torch', 'onnx_ir') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['tvm_ffi']"


def _batch(driver: EngineDriver, rows: int) -> StepBatch:
    return driver.sequences.batch({0: [1] * rows})


def test_limits_of_a_step_are_checked(engines: GetEngine) -> None:
    driver = EngineDriver(engines("fp32").load())
    with pytest.raises(InputError, match="97 rows; the engine takes 1 to 96 in one step"):
        driver.engine.step(_batch(driver, 97))
    batch = driver.sequences.batch({s: [1] for s in range(1, 10)})
    with pytest.raises(InputError, match="9 sequences; the engine takes 1 to 8"):
        driver.engine.step(batch)
    none = dataclasses.replace(_batch(driver, 1), logit_rows=np.zeros(0, np.int32))
    with pytest.raises(InputError, match="0 rows of logits; the engine takes 1 to 96"):
        driver.engine.step(none)


def test_shapes_and_types_of_a_step_are_checked(engines: GetEngine) -> None:
    driver = EngineDriver(engines("fp32").load())
    batch = _batch(driver, 3)
    with pytest.raises(InputError, match=r"expected int32 \[3\], got int32 \[2\]"):
        driver.engine.step(dataclasses.replace(batch, positions=batch.positions[:2]))
    wide = batch.tokens.astype(np.int64)
    with pytest.raises(InputError, match=r"expected int32 \[3\], got int64 \[3\]"):
        driver.engine.step(dataclasses.replace(batch, tokens=wide))  # type: ignore[arg-type]


def test_unaligned_arrays_are_taken(engines: GetEngine) -> None:
    executable = engines("fp32").load()
    expected = EngineDriver(executable).step({0: [1, 2, 3]})
    driver = EngineDriver(executable)
    batch = driver.sequences.batch({0: [1, 2, 3]})
    shifted = np.concatenate([[0], batch.tokens]).astype(np.int32)[1:]
    assert np.array_equal(executable.step(dataclasses.replace(batch, tokens=shifted)), expected)


def test_pools_are_checked(engines: GetEngine) -> None:
    engine = engines("fp32")
    executable = engine.load()
    driver_batch = EngineDriver(engine.load()).sequences.batch({0: [1]})
    with pytest.raises(InputError, match="call allocate_kv first"):
        executable.step(driver_batch)
    with pytest.raises(InputError, match="block size 24 is not a multiple of 16"):
        executable.allocate_kv((4, 4), 24)
    with pytest.raises(InputError, match=r"blocks \(4,\) for 2 KV groups"):
        executable.allocate_kv((4,), 16)
    executable.allocate_kv((4, 2), 16)
    with pytest.raises(InputError, match="slots must lie within 0 and 31"):
        executable.copy_kv(1, np.array([0], np.int32), np.array([32], np.int32))


def test_a_closed_engine_says_so(engines: GetEngine) -> None:
    executable = engines("fp32").load()
    executable.close()
    with pytest.raises(InputError, match="the engine is closed"):
        executable.allocate_kv((4, 4), 16)


def test_backend_reports_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.available() == ""
    monkeypatch.setattr(runtime_libs, "compiler_package", lambda: None)
    assert "optc[compile]" in BACKEND.available()
