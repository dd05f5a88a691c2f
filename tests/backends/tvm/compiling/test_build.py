"""Building: files, reproducibility, the compiler's process and its failures, linkers, packing."""

from __future__ import annotations

import ctypes
import filecmp
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import to_builtins

from optc.backend import SharedWeights
from optc.backends.tvm import BACKEND
from optc.backends.tvm.compiling import build as build_module
from optc.backends.tvm.compiling import link as link_module
from optc.backends.tvm.engine_data import read_data
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights import unpacking
from optc.backends.tvm.weights.weights_file import (
    Chunk,
    MappedWeights,
    PackedWeight,
    write_weights,
)
from optc.compiling.resolving.limits import predicted_bytes
from optc.compiling.resolving.memory import PeakMemory
from optc.errors import InputError, UnavailableError
from optc.system.hardware.platforms import AARCH64, MACOS_ARM, X86_64
from optc.system.hardware.target import Target, parse_target
from optc.system.progress import telling
from tests.backends.tvm.engine_driver import (
    FUSED,
    INT8,
    OPTIONS,
    SHAPE,
    Engine,
    build,
    build_once,
)
from tests.support.families import model_after
from tests.support.models import Dense

#: The cheapest engine to compile.
SMALL = Dense(hidden=16, heads=2, kv_heads=1, head_dim=8, inner=16, vocab=32, windows=(0,))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """`SMALL` in int8."""
    return build_once(tmp_path_factory, "engine-small", INT8, "x86-64-v3", SMALL)


def test_packing_tells_how_much_is_written(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    lowered = lower_model(model_after(FUSED, SHAPE), parse_target("x86-64-v3"), OPTIONS)
    tensor = Tensor("w", "int8", (3 << 20,))
    rows = tuple((start, start + (1 << 20)) for start in range(0, 3 << 20, 1 << 20))

    def packed(start: int, stop: int) -> Iterator[Chunk]:
        yield 0, np.zeros(stop - start, np.int8)

    with telling(lambda *one: told.append(one)):
        weights = (PackedWeight((tensor,), rows, packed),)
        build_module.pack_weights(replace(lowered, weights=weights), tmp_path, None)
    assert told == [("weights, MiB", done, 3) for done in (1, 2, 3)]


@pytest.mark.parametrize("owner", ["tvm", "tvm-cuda"])
def test_weights_of_any_engine_before_are_shared(owner: str, tmp_path: Path) -> None:
    """Engines come in the order in which they were asked for: a CUDA engine may be the first."""
    lowered = lower_model(model_after(FUSED, SHAPE), parse_target("x86-64-v3"), OPTIONS)
    _, placed = build_module.pack_weights(lowered, tmp_path, None)
    data = {"ffi": "1", "weights": to_builtins(placed)}
    data |= {"features": ["avx2"]} if owner == "tvm" else {"cuda": {"images": {}}}
    shared = SharedWeights(f"../{owner}", data)
    assert build_module.pack_weights(lowered, tmp_path / "other", shared) == ((), placed)


def test_files_of_an_engine(small: Engine) -> None:
    assert small.build.files == (
        "engine.so",
        "weights.bin",
        "libtvm_runtime.so",
        "libtvm_runtime_extra.so",
    )
    # nothing else is left: no program, log or object file
    left = {p.name for p in small.folder.iterdir()} - {"data.json"}
    assert left == set(small.build.files)
    assert small.build.requires.keys() == {"apache-tvm-ffi"}
    assert small.build.report["kernels"] <= 20


def built_in_a_child(folder: str) -> tuple[int, int]:
    """Bytes that building `SMALL` adds, and the prediction."""
    model = model_after(INT8, SMALL)
    with PeakMemory() as memory:
        before = memory.sample()
        BACKEND.build(model, parse_target("x86-64-v3"), Path(folder), OPTIONS)
    return memory.peak_bytes - before, predicted_bytes(model, 0, gated=False)


def test_another_process_builds_the_same_below_its_prediction_of_memory_and_near_it(
    tmp_path: Path, small: Engine
) -> None:
    script = (
        "import sys; from tests.backends.tvm.compiling.test_build import built_in_a_child as f\n"
        "print(*f(sys.argv[1]))"
    )
    other = tmp_path / "longer-name-b"
    other.mkdir()
    command = [sys.executable, "-c", script, str(other)]  # no engine is built beside it there
    # nor are kernels taken that were compiled before
    environment = os.environ | {"OPTC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    grown, predicted = map(int, done.stdout.split())
    assert grown < predicted < 4 * grown
    for name in small.build.files:
        assert filecmp.cmp(small.folder / name, other / name, shallow=False), name
    assert b"longer-name-b" not in (other / "engine.so").read_bytes()


def test_packed_weights_are_the_quantized_ones(small: Engine) -> None:
    """Values and scales read back from the file are those of the model's initializers."""
    placed = read_data(small.build.backend_data).weights
    assert all(p.offset % 64 == 0 for p in placed)
    mapped = MappedWeights(small.folder / "weights.bin", placed)
    node = next(n for n in small.model.graph if n.op_type == "QuantizedMatMul")
    weight, scale = node.inputs[2], node.inputs[3]
    assert weight is not None
    assert weight.const_value is not None
    assert scale is not None
    assert scale.const_value is not None
    values = unpacking.unpack_int(mapped.array(f"{weight.name}.packed.values"), 8)
    expected = weight.const_value.numpy()
    k, n = expected.shape
    assert np.array_equal(values[:n, :k].T.astype(np.int16) - 128, expected)
    scales = unpacking.unpack_columns(mapped.array(f"{weight.name}.packed.scales"))
    assert np.array_equal(scales[:n, 0], scale.const_value.numpy())


def test_a_crashing_compiler_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = replace(build_module.COMPILER, module="tests.support.children.crashing_child")
    monkeypatch.setattr(build_module, "COMPILER", crashing)
    with pytest.raises(UnavailableError, match="the compiler was killed by signal 6"):
        build(tmp_path, SMALL, FUSED, "x86-64-v3")


def test_a_compiler_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "COMPILER", replace(build_module.COMPILER, timeout_s=0.01))
    with pytest.raises(UnavailableError, match="the compiler did not finish within 0 s"):
        build(tmp_path, SMALL, FUSED, "x86-64-v3")


def test_old_targets_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    target = Target("x86-64-v2", "cpu", ())
    with pytest.raises(UnavailableError, match="the CPU kernels need avx2"):
        build_module.build_engine(model_after(FUSED, SMALL), target, tmp_path, OPTIONS)
    assert not list(tmp_path.iterdir())


def test_without_a_linker_the_hint_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert link_module.linker_command() == (sys.executable, "-m", "ziglang", "cc")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="needs a C\\+\\+ compiler") as caught:
        build(tmp_path, SMALL, FUSED, "x86-64-v3")
    assert caught.value.exit_code == 3
    assert "pip install ziglang" in caught.value.hint


def test_a_failing_linker_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.o"
    broken.write_bytes(b"no object")
    with pytest.raises(UnavailableError, match=r"could not link the engine: .*broken\.o"):
        link_module.link(str(tmp_path / "x.so"), [str(broken)])


def test_the_ziglang_wheel_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, object_file = tmp_path / "answer.c", tmp_path / "answer.o"
    source.write_text("int answer(void) { return 42; }")
    zig = [sys.executable, "-m", "ziglang", "cc"]
    subprocess.run([*zig, "-c", "-fPIC", str(source), "-o", str(object_file)], check=True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    link_module.link(str(tmp_path / "answer.so"), [str(object_file)], names={"other": "answer"})
    library = ctypes.CDLL(str(tmp_path / "answer.so"))
    assert library.answer() == library.other() == 42


def test_another_processor_needs_the_ziglang_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28")
    monkeypatch.setattr(platform, "machine", lambda: X86_64)
    assert link_module.linker_command(AARCH64) == zig
    assert link_module.linker_command(MACOS_ARM) == (*zig[:-1], "aarch64-macos.12.0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="for aarch64 on x86_64 needs the ziglang") as caught:
        link_module.linker_command(AARCH64)
    assert caught.value.hint == "pip install ziglang"


def test_weights_stream_in_chunks(tmp_path: Path) -> None:
    """Two tensors of a group interleave; progress counts bytes; offsets are aligned."""
    told: list[int] = []

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        yield 0, np.arange(start, stop, dtype=np.float32)
        yield 1, np.full(1, start, np.uint8)

    tensors = (Tensor("a", "float32", (3, 10)), Tensor("b", "uint8", (3,)))
    group = PackedWeight(tensors, ((0, 10), (10, 20), (20, 30)), pack)
    placed = write_weights(tmp_path / "w", [group, group_named("c")], told.append)
    assert [p.offset for p in placed] == [0, 128, 192]
    assert sum(told) == 120 + 3 + 4
    mapped = MappedWeights(tmp_path / "w", placed)
    assert np.array_equal(mapped.array("a"), np.arange(30, dtype=np.float32).reshape(3, 10))
    assert mapped.array("b").tolist() == [0, 10, 20]
    assert (tmp_path / "w").stat().st_size == 4096
    mapped.close()


def test_all_weights_are_in_memory_once_they_are_mapped(tmp_path: Path) -> None:
    """Nothing is left to page faults in the first steps; the pages are the file's, not a copy."""
    path = tmp_path / "weights"
    count = 1 << 20
    weight = replace(group_named("a", count), tiles=((0, count),))
    placed = write_weights(path, [weight])
    mapped = MappedWeights(path, placed)
    entry = Path("/proc/self/smaps").read_text().split(str(path))[1].split("VmFlags")[0]
    sizes = dict(line.split(":") for line in entry.strip().splitlines())
    assert sizes["Rss"].split() == sizes["Size"].split()
    assert sizes["Anonymous"].split() == ["0", "kB"]
    mapped.close()


def group_named(name: str, size: int = 1) -> PackedWeight:
    def pack(start: int, stop: int) -> Iterator[Chunk]:
        yield 0, np.ones(stop - start, np.float32)

    return PackedWeight((Tensor(name, "float32", (size,)),), ((0, 1),), pack)


def test_weights_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    """Tiles that finish out of order, of one weight and of several, are written in order."""
    delays = iter([0.02, 0.0, 0.01, 0.0] * 8)
    lock = threading.Lock()
    busy, most = 0, 0

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        nonlocal busy, most
        with lock:
            busy, delay = busy + 1, next(delays)
            most = max(most, busy)
        time.sleep(delay)
        yield 0, np.arange(start, stop, dtype=np.float32)
        with lock:
            busy -= 1

    tiles = tuple((start, start + 7) for start in range(0, 28, 7))
    weights = [PackedWeight((Tensor(n, "float32", (28,)),), tiles, pack) for n in "ab"]
    files = []
    for threads in (1, 2, 5):
        write_weights(tmp_path / "w", weights, threads=threads)
        files.append((tmp_path / "w").read_bytes())
        assert most <= threads
    assert files[0] == files[1] == files[2]
    assert np.frombuffer(files[0], np.float32)[:28].tolist() == list(range(28))


def test_a_weight_that_cannot_be_read_ends_the_packing(tmp_path: Path) -> None:
    def pack(start: int, stop: int) -> Iterator[Chunk]:
        raise InputError("the checkpoint is damaged", where="layers.0.w")

    broken = PackedWeight((Tensor("w", "float32", (1,)),), ((0, 1),), pack)
    with pytest.raises(InputError, match=r"layers\.0\.w: the checkpoint is damaged"):
        write_weights(tmp_path / "w", [group_named("a"), broken, group_named("b")], threads=2)


def test_chunks_that_do_not_fill_a_tensor_are_an_internal_error(tmp_path: Path) -> None:
    short = group_named("short", size=4)
    with pytest.raises(RuntimeError, match="short: packed -12 bytes off"):
        write_weights(tmp_path / "w", [short])


def test_build_time_does_not_grow_with_depth() -> None:
    """Deeper models have no more kernels (the time itself is not asserted)."""
    from optc.backends.tvm.lowering.lower_model import lower_model
    from optc.system.hardware.target import parse_target

    def count(layers: int) -> int:
        shape = Dense(**{**vars(SHAPE), "windows": (0,) * layers})
        program = lower_model(model_after(INT8, shape), parse_target("native"), OPTIONS).program
        return len({f"{c.kernel}{c.config}" for f in program.functions for c in f.calls})

    assert count(2) == count(6)
