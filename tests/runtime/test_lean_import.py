"""A serving machine has no torch, transformers, onnx or compiler: the runtime works without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import optc
from tests.runtime.support.artifacts import write_artifact

ROOT = Path(__file__).parents[2]
FORBID = """
import sys
FORBIDDEN = {"torch", "transformers", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "tvm",
             "safetensors", "ml_dtypes", "pydantic", "yaml", "psutil", "llguidance"}
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"the runtime must not import {name}")
sys.meta_path.insert(0, Forbid())
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORBID + code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_hook_forbids() -> None:
    code = "try:\n    import onnx_ir\nexcept ImportError as error:\n    print(error)"
    assert run(code) == "the runtime must not import onnx_ir"


def test_importing_optc_loads_nothing() -> None:
    """Neither NumPy nor a module of its own: its names are loaded when they are used."""
    code = "import optc; print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'optc')])"
    assert run(code) == "['optc']"


def test_parameters_and_errors_need_no_numpy() -> None:
    code = "import optc; optc.SamplingParams(); optc.RequestError; print('numpy' in sys.modules)"
    assert run(code) == "False"


def test_every_module_of_the_runtime_imports() -> None:
    code = """
import importlib, pkgutil, optc.artifact, optc.runtime
for package in (optc.artifact, optc.runtime):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
print(sorted(set(sys.modules) & FORBIDDEN))
"""
    assert run(code) == "[]"


def test_an_artifact_loads_and_generates(tmp_path: Path) -> None:
    write_artifact(tmp_path / "toy")
    code = """
import optc
from optc import registry
from tests.runtime.support.artifacts import ToyBackend
registry.backend = {"toy": ToyBackend()}.__getitem__
with optc.load(sys.argv[1], kv_memory="1MiB") as engine:
    result = engine.generate(["hello"], optc.SamplingParams(max_tokens=5, seed=1))[0]
print(result.output_tokens, sorted(set(sys.modules) & FORBIDDEN))
"""
    assert run(code, str(tmp_path / "toy")) == "5 []"


def test_an_engine_that_nobody_closes_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    write_artifact(tmp_path / "toy")
    code = """
import optc
from optc import registry
from tests.runtime.support.artifacts import ToyBackend
registry.backend = {"toy": ToyBackend()}.__getitem__
engine = optc.load(sys.argv[1], kv_memory="1MiB")
handle = engine.submit("hello", optc.SamplingParams(max_tokens=None, ignore_eos=True))
print(next(iter(handle)).index)
"""
    assert run(code, str(tmp_path / "toy")) == "0"


def test_names_of_the_package() -> None:
    assert {"compile", "load", "SamplingParams", "OptcError", "__version__"} <= set(dir(optc))
    assert optc.__version__.count(".") == 2
    for error in (optc.RequestError, optc.RequestTypeError, optc.EngineError):
        assert issubclass(error, optc.OptcError)
    with pytest.raises(AttributeError, match="module 'optc' has no attribute 'nothing'"):
        optc.nothing  # noqa: B018
