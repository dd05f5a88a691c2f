"""Engines by name: ``--backend BACKEND[:TARGET]``."""

from __future__ import annotations

import pytest

from optc import registry
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.backend import StepBackend
from optc.compiling.resolving.engines import (
    EngineTarget,
    check_self_draft,
    engine_name,
    name_engines,
    parse_engines,
    split_engines,
)
from optc.errors import InputError, UnavailableError, UnsupportedError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, parse_target
from tests.support.stub import StubBackend

Backends = dict[str, StubBackend]


@pytest.mark.parametrize(
    ("named", "target", "found"),
    [
        (None, None, [("target", "tvm", "native")]),
        ((), "x86-64-v3", [("target", "tvm", "x86-64-v3")]),
        ("aot:sm_89", None, [("target", "aot", "cuda:sm_89")]),
        (
            None,
            "x86-64-v3,aarch64-i8mm",
            [
                ("tvm-x86-64-v3", "tvm", "x86-64-v3"),
                ("tvm-aarch64-i8mm", "tvm", "aarch64-i8mm"),
            ],
        ),
        ("aot", "sm_80,sm_89", [("target", "aot", "cuda:sm_80+sm_89")]),
        (
            ["tvm", "tvm:x86-64-v4-vnni"],
            "x86-64-v3",
            [
                ("tvm-x86-64-v3", "tvm", "x86-64-v3"),
                ("tvm-x86-64-v4-vnni", "tvm", "x86-64-v4-vnni"),
            ],
        ),
        (
            "tvm,aot:sm_89,sm_120",
            None,
            [
                ("tvm-native", "tvm", "native"),
                ("aot-sm_89+sm_120", "aot", "cuda:sm_89+sm_120"),
            ],
        ),
    ],
)
def test_names(
    backends: Backends, named: str | None, target: str | None, found: list[tuple[str, ...]]
) -> None:
    requests = name_engines(named, target, "tvm")
    assert [(r.name, r.backend.name, r.target.name) for r in requests] == found


@pytest.mark.parametrize(
    ("named", "target", "message"),
    [
        ("tmv", None, "--backend: unknown backend 'tmv' (did you mean 'tvm'?)"),
        ("tvm,tvm:native", None, "--backend: tvm for native is asked for twice"),
        ("tvm:native", "x86-64-v3", "--target x86-64-v3: every --backend names its own target"),
        ("aot", None, "--backend aot:native: it compiles for CUDA targets"),
        ("tvm:x86-64-v7", None, "--backend tvm:x86-64-v7: "),
    ],
)
def test_what_is_refused(backends: Backends, named: str, target: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        name_engines(named, target, "tvm")
    assert caught.value.render().startswith(message)


def test_a_backend_that_cannot_build_here_is_refused_only_where_it_must_build(
    backends: Backends,
) -> None:
    backends["aot"].reason = "no compiler: install it"
    assert len(name_engines("tvm,aot:sm_89", None, "tvm")) == 2
    assert len(parse_engines("tvm", None, "tvm")) == 1
    with pytest.raises(UnavailableError, match=r"^backend aot: no compiler: install it$"):
        parse_engines("tvm,aot:sm_89", None, "tvm")


def test_what_a_target_needs_is_asked_before_anything_is_read(backends: Backends) -> None:
    backends["aot"].lacking = "the runtime libraries are not on this machine"
    with pytest.raises(UnavailableError, match=r"^backend aot: the runtime libraries are not"):
        parse_engines("tvm,aot:sm_89", None, "tvm")


def test_architectures_belong_to_the_item_before() -> None:
    assert split_engines("tvm,aot:sm_89,sm_120,tvm:x") == ["tvm", "aot:sm_89+sm_120", "tvm:x"]
    assert split_engines("sm_89") == ["sm_89"]


def test_names_are_of_the_architectures_where_there_are_some() -> None:
    stub = StubBackend("b")
    assert engine_name(stub, parse_target("cuda:sm_80+sm_89")) == "b-sm_80+sm_89"
    assert engine_name(stub, parse_target("x86-64-v3")) == "b-x86-64-v3"


def test_a_draft_of_the_first_layers_needs_weights_that_can_be_shared(backends: Backends) -> None:
    check_self_draft(name_engines("tvm", None, "tvm"))
    with pytest.raises(UnsupportedError, match=r"^--self-draft: engines of the aot backend"):
        check_self_draft(name_engines("tvm,aot:sm_89", None, "tvm"))


class TensorsOnly:
    """A backend that builds engines of named tensors alone."""

    name = "shapes"
    preference = 0

    def available(self) -> str:
        return ""

    def takes(self, target: Target) -> str:
        return ""

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        return None

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        return ""

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        return ()


def test_a_backend_without_steps_is_refused_where_text_is_generated() -> None:
    request = EngineTarget("target", TensorsOnly(), parse_target("native"))
    with pytest.raises(
        UnsupportedError, match=r"^backend shapes: builds no engines of models that generate text"
    ):
        _ = request.steps


@pytest.mark.parametrize("name", ["onnxruntime", "tensorrt", "tvm", "tvm-cuda"])
def test_our_backends_build_steps(name: str) -> None:
    assert isinstance(registry.backend(name), StepBackend)
