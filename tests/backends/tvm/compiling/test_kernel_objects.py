"""Kernels come out of the cache as they went in, and the cache never decides what they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tvm
from tvm import tirx

from optc.backends.tvm.compiling import compiler, kernel_objects
from optc.backends.tvm.compiling.compiler import PREFIX, compile_program
from optc.backends.tvm.compiling.kernel_objects import KernelObjects, without
from optc.backends.tvm.engine_files import ENGINE_FILE
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.fingerprint import fingerprint_kernel
from optc.backends.tvm.program import Call, Function, Program, Tensor
from optc.system.hardware.target import known_targets

ISA = isa_of(known_targets()["x86-64-v3"])


def _kernel(value: int = 1) -> tirx.PrimFunc:
    return fingerprint_kernel((value,) * 8)


def _objects(folder: Path, isa: Isa = ISA) -> KernelObjects:
    return KernelObjects(isa, folder)


def test_a_kernel_is_compiled_once(tmp_path: Path) -> None:
    first, second = _objects(tmp_path), _objects(tmp_path)
    made = first.object("a", _kernel())
    assert second.object("a", _kernel()) == made
    assert (first.compiled, second.compiled) == (1, 0)
    assert f"{PREFIX}{first.symbol('a')}".encode() in made


def test_what_it_is_compiled_from_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = [_objects(tmp_path).symbol("a"), _objects(tmp_path).symbol("b")]
    symbols.append(_objects(tmp_path, isa_of(known_targets()["x86-64-v4-vnni"])).symbol("a"))
    monkeypatch.setattr(kernel_objects, "code_digest", lambda: "other code")
    symbols.append(_objects(tmp_path).symbol("a"))
    monkeypatch.setattr(tvm, "__version__", "0.0")
    symbols.append(_objects(tmp_path).symbol("a"))
    assert len(set(symbols)) == 5


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 4096])
def test_a_damaged_object_is_compiled_again(tmp_path: Path, content: bytes) -> None:
    made = _objects(tmp_path).object("a", _kernel())
    (file,) = tmp_path.iterdir()  # and no part of one
    file.write_bytes(content)
    again = _objects(tmp_path)
    assert again.object("a", _kernel()) == made
    assert again.compiled == 1
    assert _objects(tmp_path).object("a", _kernel(2)) == made  # whole again: taken from the file


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    objects = _objects(tmp_path / "file/kernels")
    assert objects.object("a", _kernel())
    objects.prune()


def test_what_was_not_used_for_longest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_objects, "KEPT", 2)
    objects = _objects(tmp_path)
    for age, key in enumerate("abc"):
        objects.object(key, _kernel())
        os.utime(tmp_path / f"{objects.symbol(key)}.o", (age, age))
    objects.object("a", _kernel())  # used again
    objects.prune()
    assert {p.stem for p in tmp_path.iterdir()} == {objects.symbol("a"), objects.symbol("c")}


def test_the_pipeline_leaves_out_kernels_compiled_elsewhere() -> None:
    named = {n: _kernel().with_attr("global_symbol", n) for n in ("kept", "left")}
    built = tirx.build(
        tvm.IRModule(named), target=ISA.tvm_target(), pipeline=without(frozenset({"left"}))
    )
    assert built.implements_function("kept")
    assert not built.implements_function("left")


def _program(width: int) -> Program:
    """Takes the hyperbolic tangent of rows of ``width``."""
    x, y = (Tensor(name, "float32", ("T", width)) for name in "xy")
    call = Call("elementwise", {"operation": "tanh", "width": width}, ("x",), (y,))
    step = Function("step", (x,), (call,), "y")
    return Program((step,), {"T": 4}, ISA.name, ISA.features)


def test_an_engine_has_the_same_bytes_with_and_without_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, compiled = [], []
    for folder in ("cold", "cold", "other"):
        monkeypatch.setenv("OPTC_CACHE", str(tmp_path / folder))
        report = compile_program(_program(8), tmp_path / ENGINE_FILE)
        engines.append((tmp_path / ENGINE_FILE).read_bytes())
        compiled.append(report["kernels_compiled"])
    assert engines[0] == engines[1] == engines[2]
    assert compiled[0] == compiled[2] > compiled[1] == 0


def test_a_kept_kernel_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    compile_program(_program(8), tmp_path / ENGINE_FILE)

    def refuse(kernel: str, *_: object) -> None:
        raise AssertionError(f"{kernel} is written")

    monkeypatch.setattr(compiler, "make_kernel", refuse)
    assert compile_program(_program(8), tmp_path / ENGINE_FILE)["kernels_compiled"] == 0
    with pytest.raises(AssertionError, match="elementwise is written"):
        compile_program(_program(16), tmp_path / ENGINE_FILE)


def test_an_object_that_goes_meanwhile_is_not_missed(tmp_path: Path) -> None:
    made = _objects(tmp_path).object("a", _kernel())
    objects = _objects(tmp_path)
    stands_in = objects.function("a", 2, _kernel)
    for file in tmp_path.iterdir():
        file.unlink()
    assert len(stands_in.params) == 2
    assert objects.object("a", stands_in) == made
