from __future__ import annotations

import gc
import os
import subprocess
import sys

# Before what reads them is imported: PyTorch has one thread where nothing says how many, and its
# threads and TVM's sleep while they wait, as `tests.support.cost.asleep` explains.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import optc
from tests.support.cost.asleep import sleep_in_sessions
from tests.support.cost.covering import mark_the_rest
from tests.support.cost.forked_compiler import fork_compilers
from tests.support.cost.narrow import narrow_engines, narrow_name
from tests.support.cost.rounded import rounded
from tests.support.cost.subject import begin, with_passes
from tests.support.shared import made_once, shared_folder

MODELS = Path(__file__).parents[1] / "examples/models"

#: Python looks for garbage after 700 new objects. Graphs and what PyTorch traces make hundreds of
#: thousands, nearly all of which stay while a test runs: a 25th of the time went into looking.
GARBAGE = (20_000, 10, 20)

# A test never depends on time: not on a busy machine's either. The same examples in every run.
settings.register_profile(
    "optc", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("optc")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage meanwhile, and later not among what was imported: modules stay, and a
    fifth of the time of their imports would go into that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of large tables of parameters, `make test` runs what shows every value."""
    mark_the_rest(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures, which may build engines."""
    begin(item)


@pytest.fixture(autouse=True, scope="session")
def narrow_vectors() -> None:
    """Engines that are a means are those of AVX2."""
    narrow_engines(pytest.MonkeyPatch())


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests keep no measurements in the user's cache folder; workers share compiled kernels and
    exported graphs."""
    folder: Path = tmp_path_factory.mktemp("cache")
    for name in ("kernels", "exports"):
        (folder / name).symlink_to(shared_folder(tmp_path_factory, name))
    patch = pytest.MonkeyPatch()
    patch.setenv("OPTC_CACHE", str(folder))


@pytest.fixture(autouse=True, scope="session")
def sleeping_sessions() -> None:
    """Threads of ONNX Runtime that wait sleep."""
    sleep_in_sessions(pytest.MonkeyPatch())


@pytest.fixture(autouse=True, scope="session")
def forked_compilers() -> None:
    """TVM is imported once for all engines that a worker builds."""
    fork_compilers(pytest.MonkeyPatch())


@pytest.fixture(autouse=True)
def as_wide_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as they go into a file, whatever width pytest's workers state."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def exact_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained example in float32, ungated, compiled by a process of its own, narrow."""

    def compile(folder: Path) -> Path:
        output = folder / "artifact"
        options = ("--recipe", "fp32", "-o", str(output), "--no-gates", "--target", narrow_name())
        command = [sys.executable, "-m", "optc", "compile", str(MODELS / "pycode"), *options]
        subprocess.run(command, cwd=MODELS.parents[1], check=True, capture_output=True)
        return output

    return made_once(tmp_path_factory, "pycode-fp32", compile)


@pytest.fixture(scope="session")
def drafting_artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The trained example with everything that drafts, int8-fused without calibration and ungated,
    by type of KV; the layer that drafts by hidden states with int8 alone, since its engine takes
    time to build. With LLVM's passes: what has to change no token is compared on it."""

    def get(kv: str) -> Path:
        def compile(folder: Path) -> Path:
            with with_passes():
                return optc.compile(
                    MODELS / "pycode",
                    rounded("int8-fused", folder),
                    folder / "artifact",
                    set=[f"kv-cache.dtype={kv}"],
                    draft=MODELS / "pycode-draft",
                    self_draft=3,
                    medusa=MODELS / "pycode-medusa",
                    eagle=MODELS / "pycode-eagle" if kv == "int8" else None,
                    no_gates=True,
                ).path

        return made_once(tmp_path_factory, f"pycode-drafting-{kv}", compile)

    return get
