"""The package that builds for a target, and what is missing here for it."""

from __future__ import annotations

import pytest

from optc import registry
from optc.backend import CrossBackend
from optc.backends.tensorrt import targets
from optc.backends.tensorrt.provider import FULL, RTX
from optc.backends.tensorrt.targets import lacks, package_for, refusal
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import CUDA_SMS, cuda_target, parse_target

NO_GPU = Machine(frozenset(), (), "no NVIDIA driver is installed")
H100, L4 = Machine(frozenset(), (90,), ""), Machine(frozenset(), (89, 90), "")


def installed(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(targets, "installed_packages", lambda: packages)


@pytest.mark.parametrize(
    ("packages", "architectures", "package"),
    [
        ((RTX, FULL), ("sm_80", "sm_89"), RTX),
        ((RTX,), ("sm_89",), RTX),
        ((FULL,), ("sm_89",), FULL),
        ((), ("sm_89",), RTX),
        ((RTX, FULL), ("sm_90",), FULL),
        ((RTX,), ("sm_100",), FULL),
    ],
)
def test_rtx_is_preferred_where_it_has_kernels(
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    architectures: tuple[str, ...],
    package: str,
) -> None:
    installed(monkeypatch, *packages)
    assert package_for(architectures) == package


@pytest.mark.parametrize("sm", CUDA_SMS)
def test_every_gpu_by_itself_is_taken(sm: int) -> None:
    assert refusal(cuda_target(sm)) == ""


def test_several_gpus_in_one_engine_are_of_rtx_alone() -> None:
    assert refusal(cuda_target(80, 89, 120)) == ""
    assert refusal(cuda_target(80, 90)) == (
        "TensorRT-RTX has no kernels for sm_90, only for sm_75, sm_80, sm_86, sm_89, sm_120, "
        "sm_121, and TensorRT builds an engine for one GPU: name sm_90 alone"
    )


@pytest.mark.parametrize(
    ("packages", "sm", "machine", "said"),
    [
        ((RTX,), 89, NO_GPU, ""),
        ((RTX, FULL), 90, H100, ""),
        ((FULL,), 89, L4, ""),
        (
            (RTX,),
            90,
            H100,
            "TensorRT-RTX has no kernels for sm_90, TensorRT has: "
            "pip install 'optc[tensorrt-full]'",
        ),
        (
            (),
            89,
            NO_GPU,
            "the package tensorrt_rtx is not installed (pip install 'optc[tensorrt]')",
        ),
        (
            (RTX, FULL),
            100,
            NO_GPU,
            "TensorRT builds for the GPU of the machine, not ahead of time: no NVIDIA driver is "
            "installed; compile on a machine with sm_100",
        ),
        (
            (FULL,),
            80,
            NO_GPU,
            "TensorRT builds for the GPU of the machine, not ahead of time: no NVIDIA driver is "
            "installed; compile on a machine with sm_80; TensorRT-RTX needs no GPU: "
            "pip install 'optc[tensorrt]'",
        ),
        (
            (FULL,),
            90,
            L4,
            "TensorRT builds for the first GPU of the machine, which is sm_89, not for sm_90",
        ),
    ],
)
def test_what_is_missing_is_said_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    sm: int,
    machine: Machine,
    said: str,
) -> None:
    installed(monkeypatch, *packages)
    assert lacks(cuda_target(sm), machine) == said


def test_a_compile_asks_the_backend_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, RTX)
    backend = registry.backend("tensorrt")
    assert isinstance(backend, CrossBackend)
    assert backend.lacks(parse_target("sm_89")) == ""
    assert backend.fetch(parse_target("sm_89")) == (
        "nothing to fetch: all that a build needs is here"
    )
    assert "optc[tensorrt-full]" in backend.lacks(parse_target("sm_90"))
    assert "nothing to fetch: TensorRT-RTX has no kernels" in backend.fetch(parse_target("sm_90"))
