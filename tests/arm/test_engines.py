"""Engines for aarch64 beside one for x86 in one artifact: compiled here, run under an emulator."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.artifact.choose import choose_engine
from optc.backends.tvm import runtime_fetch, runtime_libs
from optc.errors import UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import AARCH64, known_targets
from tests.arm.emulator import CPUS, ROOT, RUNTIME, environment, missing, need_emulator, python
from tests.support.shared import made_once
from tests.support.stub import write_tiny_model

#: All models of `make test-arm`; `make test` compiles the tiny one alone, for one target of Arm.
FULL = bool(os.environ.get("OPTC_TEST_ARM_ENGINES"))
ARM = ("aarch64-dotprod", "aarch64-i8mm") if FULL else ("aarch64-dotprod",)
MODELS = ("tiny", "pycode") if FULL else ("tiny",)
PROMPT = "def fib(n):"
GREEDY = optc.SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
#: ELF's number of the machine.
_EM_AARCH64 = 183


@pytest.fixture(scope="module", params=MODELS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    pytest.importorskip("ziglang")
    name = request.param

    def compile(folder: Path) -> Path:
        model = write_tiny_model(folder / "tiny") if name == "tiny" else ROOT / "examples/models"
        source = model if name == "tiny" else model / name
        targets = ",".join(("x86-64-v3", *ARM))
        output = folder / "artifact"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime_fetch, "fetched_folder", lambda _: _runtime(folder))
            patch.setattr(runtime_libs, "fetched_folder", lambda _: _runtime(folder))
            return optc.compile(source, "int8-fused", output, target=targets, no_gates=True).path

    return Artifact.open(made_once(tmp_path_factory, f"arm-{name}", compile))


def _runtime(folder: Path) -> Path:
    """TVM's libraries for aarch64; stand-ins where they are not needed to run."""
    if not missing():
        return RUNTIME
    stand_in = folder / "runtime"
    stand_in.mkdir(exist_ok=True)
    for name in runtime_libs.LIBRARIES:
        (stand_in / name).write_bytes(name.encode())
    return stand_in


def test_all_engines_read_one_file_of_weights(artifact: Artifact) -> None:
    engines = {entry.name: entry for entry in artifact.manifest.engines}
    assert list(engines) == ["tvm-x86-64-v3", *(f"tvm-{target}" for target in ARM)]
    assert [p.parent.name for p in artifact.path.rglob("weights.bin")] == ["tvm-x86-64-v3"]
    for target in ARM:
        entry = engines[f"tvm-{target}"]
        assert entry.data["shared"] == "../tvm-x86-64-v3"
        assert entry.data["own_libraries"] is True
        assert {"engine.so", *runtime_libs.LIBRARIES} == set(entry.files)
        head = (artifact.path / entry.folder / "engine.so").read_bytes()[:20]
        assert struct.unpack("<H", head[18:]) == (_EM_AARCH64,)


def test_each_machine_loads_its_own(artifact: Artifact) -> None:
    engines = artifact.manifest.engines
    for name in ("x86-64-v3", *ARM):
        machine = Machine(frozenset(known_targets()[name].features))
        assert choose_engine(engines, "a", machine=machine).entry.name == f"tvm-{name}"
    old = Machine(frozenset({"asimd"}))
    with pytest.raises(UnavailableError, match="it needs asimddp, atomics, which this CPU lacks"):
        choose_engine(engines, "a", machine=old)
    with pytest.raises(UnavailableError, match=f"it needs a processor of {AARCH64}"):
        optc.load(artifact.path, engine="tvm-aarch64-dotprod")


@pytest.mark.parametrize("target", ARM)
def test_tokens_are_those_of_x86(artifact: Artifact, target: str) -> None:
    """The lean runtime on aarch64, as the command line starts it: threads, pages, sampling."""
    need_emulator()
    with optc.load(artifact.path, engine="tvm-x86-64-v3") as here:
        expected = list(here.generate([PROMPT], GREEDY)[0].token_ids)
    options = ["--prompt", PROMPT, "--max-tokens", "16", "--temperature", "0", "--ignore-eos"]
    command = python("-m", "optc", "run", str(artifact.path), *options, "--json", cpu=CPUS[target])
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["engine"]["name"] == f"tvm-{target}"
    assert answer["token_ids"] == expected
