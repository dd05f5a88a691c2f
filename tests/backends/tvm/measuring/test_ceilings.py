"""Ceilings and profiles of built engines, on every instruction set. Nothing timed is asserted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm

from optc.backends.tvm import BACKEND
from optc.backends.tvm.engine_files import ENGINE_FILE
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.loaded.loader import kernel_library
from optc.backends.tvm.measuring import ceilings as ceilings_module
from optc.backends.tvm.measuring.ceilings import Meter
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from optc.backends.tvm.runtime_libs import import_ffi
from optc.errors import ArtifactError, UnavailableError
from optc.proof.bench.batches import block_count, step_batch
from optc.proof.roofline.measurable import MeasurableBackend
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import Engine

GetEngine = Callable[[str], Engine]


def test_the_backend_can_be_measured() -> None:
    assert isinstance(BACKEND, MeasurableBackend)


@pytest.mark.parametrize("name", ["int8", "int8-v3"])
def test_an_engine_measures_ceilings(engines: GetEngine, name: str) -> None:
    engine = engines(name)
    meter = BACKEND.open_meter(engine.folder, engine.build.backend_data, 2, 1 << 20)
    meter.measure()
    found = meter.ceilings()
    features = engine.build.backend_data["features"]
    expected = {"read", "int8", "fp32"}
    expected |= {"bf16"} if "avx512_bf16" in features else set()
    expected |= set() if "avx512_vnni" in features else {"int4"}
    assert set(found) == expected
    assert all(ceiling.best >= ceiling.median > 0 for ceiling in found.values())
    assert meter.read_bytes == 1 << 20


@pytest.mark.parametrize(("wanted", "taken"), [(1, 1 << 17), (40 << 20, 39.75 * (1 << 20))])
def test_the_working_set_is_cut_into_even_pieces(
    engines: GetEngine, wanted: int, taken: float
) -> None:
    """At least one unit; 40 MiB are three pieces of 13.25 MiB, a multiple of 128 KiB."""
    engine = engines("int8")
    meter = BACKEND.open_meter(engine.folder, engine.build.backend_data, 1, wanted)
    assert meter.read_bytes == taken


class Library:
    """Ceiling kernels compiled here."""

    def __init__(self, target: str) -> None:
        self.isa = isa_of(parse_target(target))
        functions = tvm.IRModule(ceiling_kernels(self.isa))
        self.compiled = tvm.compile(functions, self.isa.tvm_target())

    def get_function(self, name: str) -> Callable[..., object]:
        function: Callable[..., object] = self.compiled[name]
        return function


@pytest.mark.parametrize(
    ("target", "instructions"),
    [
        ("x86-64-v3", ("vpmaddubsw", "vpmaddwd", "vpaddw", "vfmadd")),
        ("x86-64-v4-vnni", ("vpdpbusd", "vfmadd")),
        ("native", ("vpdpbusd", "vfmadd", "vdpbf16ps")),
    ],
)
def test_peaks_run_the_instructions_of_the_matmuls(
    target: str, instructions: tuple[str, ...]
) -> None:
    """Every sum of a loop's body keeps its instruction: none is moved out or merged."""
    isa = isa_of(parse_target(target))
    if target == "native" and not isa.bf16:
        pytest.skip("this CPU has no bfloat16 instructions")
    text = Library(target).compiled.mod.inspect_source("s")
    for instruction in instructions:
        assert text.count(instruction) >= ceilings_module.SUMS, instruction
    register = "zmm" if isa.lanes == 16 else "ymm"
    assert register in text
    peaks = {"int8", "fp32"} | ({"bf16"} if isa.bf16 else set()) | (set() if isa.vnni else {"int4"})
    assert set(isa.peaks) == peaks


@pytest.mark.parametrize("streams", ceilings_module.READERS)
def test_readers_read_every_word_once(streams: tuple[int, int, int]) -> None:
    """The XOR of all words is that of the lanes of all chunks; one changed word changes it."""
    reader = Library("x86-64-v3").get_function(ceilings_module.reader_name(*streams))
    data = np.random.default_rng(0).integers(0, 1 << 30, 1 << 17, np.int32)
    out = np.zeros((ceilings_module.CHUNKS, 16), np.int32)
    wrap = import_ffi().from_dlpack
    reader(wrap(data), wrap(out))
    assert np.bitwise_xor.reduce(out, axis=None) == np.bitwise_xor.reduce(data)
    assert len(np.unique(out)) > ceilings_module.CHUNKS


def test_engines_without_costs_say_so(engines: GetEngine) -> None:
    engine = engines("int8")
    data = {k: v for k, v in engine.build.backend_data.items() if k != "costs"}
    with pytest.raises(UnavailableError, match=r"the engine states no costs \(compile it again\)"):
        BACKEND.step_costs(data)


def test_a_missing_kernel_is_named(engines: GetEngine) -> None:
    library = engines("int8").folder / ENGINE_FILE
    with pytest.raises(ArtifactError, match=r"engine\.so: the engine has no kernel 'ceiling_x'"):
        kernel_library(import_ffi(), library, "ceiling_x")


def test_ceilings_are_compiled_on_their_own(tmp_path: Path) -> None:
    meter = BACKEND.build_meter(parse_target("x86-64-v3"), tmp_path, 1, 1 << 17)
    assert isinstance(meter, Meter)
    meter.measure()
    assert set(meter.ceilings()) == {"read", "int8", "int4", "fp32"}
    assert not list(tmp_path.glob("*.json"))


def test_a_profile_times_every_call_of_the_step(engines: GetEngine) -> None:
    engine = engines("int8")
    spec, data = engine.build.spec, engine.build.backend_data
    costs = BACKEND.step_costs(data)
    profiler = BACKEND.open_profiler(engine.folder, spec, data, 2)
    executable = engine.load()
    batch = step_batch(spec, 2, 3, 20, 16)
    for loaded in (profiler, executable):
        loaded.allocate_kv((block_count(2, 20, 16),) * len(spec.groups), 16)
    expected = executable.step(batch).copy()
    times = profiler.time_step(batch, rounds=2)
    calls = Counter({kernel.name: kernel.calls for kernel in times.kernels})
    # what the build counted is what ran; the rest are operators that TVM lowered
    assert {name: calls[name] for name in costs.kernels} == {
        name: cost.calls for name, cost in costs.kernels.items()
    }
    assert times.step_s > 0
    assert times.call_s > 0
    assert sum(kernel.seconds for kernel in times.kernels) > 0
    # replayed calls computed what a step computes
    again = profiler._executable.step(batch)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(again, expected)
    profiler.close()
    executable.close()
