"""What is said of an engine that cannot be loaded here, before TensorRT is asked."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from optc import registry
from optc.backends.tensorrt import loading
from optc.backends.tensorrt.engine_data import ENGINE_FILE, read_data
from optc.backends.tensorrt.header import SIZE, parse_header
from optc.backends.tensorrt.loading import check_device, gpu_mismatch, release_mismatch
from optc.errors import UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import parse_target
from tests.runtime.test_lean_import import run as run_lean

_JSON = {
    "package": "tensorrt_rtx",
    "version": "1.7.1.116",
    "slot_length": 16,
    "profiles": [{"name": "decode", "batch": 1, "rows": 1, "logits": 1}],
    "inputs": ["tokens"],
    "aliases": {},
}
_DATA = read_data(_JSON)


def _header(mask: int) -> bytes:
    head = b"vtrt".ljust(16, b"\0") + struct.pack("<Q4B4sI", SIZE, 1, 7, 1, 116, b"vtrt", mask)
    return head.ljust(SIZE, b"\0")


def test_without_a_driver_the_message_names_gpu_release_and_reason() -> None:
    machine = Machine(frozenset(), (), "no NVIDIA driver is installed (libcuda.so.1 was not found)")
    with pytest.raises(UnavailableError) as caught:
        check_device(parse_header(_header(0x8), "engine"), _DATA, machine, "engine.trt")
    assert caught.value.message == (
        "Engine for SM89 (TensorRT-RTX 1.7.1) was built but cannot be loaded: no usable CUDA driver"
        " on this machine (no NVIDIA driver is installed (libcuda.so.1 was not found))"
    )


def test_another_gpu_is_named_with_what_to_compile() -> None:
    header = parse_header(_header(0x2 | 0x8), "engine")
    check_device(header, _DATA, Machine(frozenset(), (89,)), "engine.trt")
    with pytest.raises(UnavailableError, match=r"built for SM80\+SM89, the GPU here is SM120"):
        check_device(header, _DATA, Machine(frozenset(), (120,)), "engine.trt")


def test_the_release_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: dict[str, str | None] = {"tensorrt_rtx": "1.7.1.9"}
    monkeypatch.setattr(loading, "installed_version", installed.get)
    assert release_mismatch({"tensorrt_rtx": "1.7.1.116"}) == ""
    assert release_mismatch({"tensorrt_rtx": "1.6.0.1"}) == (
        "it needs tensorrt_rtx 1.6.0.1, installed is 1.7.1.9"
    )
    assert "which is not installed" in release_mismatch({"tensorrt": "11.4"})


def test_engines_are_offered_to_their_own_gpus_only() -> None:
    target = parse_target("sm_80+sm_89")
    assert gpu_mismatch(target, Machine(frozenset(), (89,))) == ""
    assert "no CUDA device" in gpu_mismatch(target, Machine(frozenset(), ()))
    assert gpu_mismatch(target, Machine(frozenset(), (86, 89))) == (
        "it was built for sm_80+sm_89, the first CUDA device here is sm_86"
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("sm_89", ""),
        ("sm_80+sm_120", ""),
        ("sm_80+sm_90", "TensorRT-RTX has no kernels for sm_90, only for sm_75, sm_80"),
        ("x86-64-v3", "TensorRT compiles for cuda targets only"),
    ],
)
def test_targets(target: str, reason: str) -> None:
    said = registry.backend("tensorrt").takes(parse_target(target))
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


def test_a_damaged_engine_is_refused_before_the_driver_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "installed_version", lambda _: "1.7.1.116")
    (tmp_path / ENGINE_FILE).write_bytes(_header(0x8)[:-1])
    with pytest.raises(Exception, match="no TensorRT-RTX engine"):
        loading.load_engine(tmp_path, None, _JSON)  # type: ignore[arg-type]


def test_loading_needs_no_compiler() -> None:
    """The modules that run an engine import neither ONNX nor TensorRT until it is opened."""
    names = ("loading", "runtime.open", "runtime.executable")
    modules = ", ".join(f"optc.backends.tensorrt.{name}" for name in names)
    code = f"import {modules}; print('tensorrt_rtx' in sys.modules)"
    assert run_lean(code) == "False"
