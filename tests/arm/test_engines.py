"""Engines for aarch64 beside one for x86 in one artifact: compiled here, run under an emulator, but
for those of macOS, which are read."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.artifact.choose import choose_engine
from optc.backends.tvm import runtime_fetch, runtime_libs
from optc.backends.tvm.compiling.compiler import PREFIX
from optc.backends.tvm.engine_files import LIBRARIES, code_files
from optc.errors import UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.platforms import AARCH64, MACOS
from optc.system.hardware.target import known_targets
from tests.arm.emulator import (
    CPUS,
    FULL,
    ROOT,
    RUNTIME,
    environment,
    missing,
    need_emulator,
    python,
)
from tests.arm.mac_artifact import for_macos
from tests.arm.macho import MachO
from tests.arm.test_macos import check_code, check_library
from tests.support.shared import made_once
from tests.support.stub import write_tiny_model

#: `make test` compiles the tiny model alone, for one target of Arm.
ARM = ("aarch64-dotprod", "aarch64-i8mm") if FULL else ("aarch64-dotprod",)
MACS = ("arm64-macos-dotprod", "arm64-macos-i8mm") if FULL else ()
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
        targets = ",".join(("x86-64-v3", *ARM, *MACS))
        output = folder / "artifact"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime_fetch, "fetched_folder", partial(_runtime, folder))
            patch.setattr(runtime_libs, "fetched_folder", partial(_runtime, folder))
            return optc.compile(source, "int8-fused", output, target=targets, no_gates=True).path

    return Artifact.open(made_once(tmp_path_factory, f"arm-{name}", compile))


def _runtime(folder: Path, platform: str) -> Path:
    """TVM's libraries for a platform; stand-ins where they are not needed to run."""
    if platform == AARCH64 and not missing():
        return RUNTIME
    stand_in = folder / platform
    stand_in.mkdir(exist_ok=True)
    for name in runtime_fetch.libraries_for(platform):
        (stand_in / name).write_bytes(name.encode())
    return stand_in


def test_all_engines_read_one_file_of_weights(artifact: Artifact) -> None:
    engines = {entry.name: entry for entry in artifact.manifest.engines}
    assert list(engines) == [f"tvm-{target}" for target in ("x86-64-v3", *ARM, *MACS)]
    assert [p.parent.name for p in artifact.path.rglob("weights.bin")] == ["tvm-x86-64-v3"]
    for target in ARM:
        entry = engines[f"tvm-{target}"]
        assert entry.data["shared"] == "../tvm-x86-64-v3"
        assert entry.data["own_libraries"] is True
        assert {"engine.so", *LIBRARIES} == set(entry.files)
        head = (artifact.path / entry.folder / "engine.so").read_bytes()[:20]
        assert struct.unpack("<H", head[18:]) == (_EM_AARCH64,)


@pytest.mark.parametrize("target", MACS)
def test_engines_for_macos_are_libraries_that_it_loads(artifact: Artifact, target: str) -> None:
    entry = next(e for e in artifact.manifest.engines if e.name == f"tvm-{target}")
    assert entry.data["shared"] == "../tvm-x86-64-v3"
    assert entry.data["own_libraries"] is True
    code = code_files(MACOS)
    assert {code.engine, *code.libraries} == set(entry.files)
    library = MachO(artifact.path / entry.folder / code.engine)
    check_library(library, code.engine)
    check_code(library, target)
    assert f"{PREFIX}_library_bin" in library.exports, "the virtual machine's code"
    assert b"/optc" not in library.data, "no path of this machine"
    with pytest.raises(UnavailableError, match="it needs macOS, this is Linux"):
        optc.load(artifact.path, engine=entry.name)


def test_each_machine_loads_its_own(artifact: Artifact) -> None:
    engines = artifact.manifest.engines
    for name in ("x86-64-v3", *ARM):
        machine = Machine(frozenset(known_targets()[name].features))
        assert choose_engine(engines, "a", machine=machine).entry.name == f"tvm-{name}"
    for name in MACS:
        machine = Machine(frozenset(known_targets()[name].features), system=MACOS)
        assert choose_engine(engines, "a", machine=machine).entry.name == f"tvm-{name}"
    mac = Machine(frozenset(known_targets()[ARM[0]].features), system=MACOS)
    with pytest.raises(UnavailableError, match="it needs Linux, this is macOS"):
        choose_engine([e for e in engines if e.name == f"tvm-{ARM[0]}"], "a", machine=mac)
    old = Machine(frozenset({"asimd"}))
    with pytest.raises(UnavailableError, match="it needs asimddp, atomics, which this CPU lacks"):
        choose_engine(engines, "a", machine=old)
    with pytest.raises(UnavailableError, match=f"it needs a processor of {AARCH64}"):
        optc.load(artifact.path, engine="tvm-aarch64-dotprod")


def _tokens(module: str, artifact: Path, *options: str) -> dict[str, Any]:
    """What a command of its own answers to `PROMPT`."""
    options = (*options, "--max-tokens", "16", "--temperature", "0", "--ignore-eos", "--json")
    command = [sys.executable, "-m", module, "run", str(artifact), "--prompt", PROMPT, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_the_runtime_takes_nothing_that_linux_alone_has(artifact: Artifact, tmp_path: Path) -> None:
    """All but code of engines, as on a Mac: choice, loading, memory, threads, sampling."""
    mac = for_macos(artifact.path, "tvm-x86-64-v3", tmp_path / "mac")
    with pytest.raises(UnavailableError, match="it needs macOS, this is Linux"):
        optc.load(mac)
    found = _tokens("tests.arm.like_macos", mac)
    assert found["engine"]["target"] == "arm64-macos-dotprod"
    expected = _tokens("optc", artifact.path, "--engine", "tvm-x86-64-v3")
    assert found["token_ids"] == expected["token_ids"]
    refused = _tokens("tests.arm.like_macos", mac, "--resident-memory", "1k")["error"]
    assert "on macOS that is not written yet" in refused["message"]
    refused = _tokens("tests.arm.like_macos", artifact.path, "--engine", "tvm-x86-64-v3")["error"]
    assert "it needs Linux, this is macOS" in refused["message"]
    assert "on Linux, with --target arm64-macos-dotprod" in refused["hint"]


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
