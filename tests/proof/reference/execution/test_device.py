"""Devices: the one of a block, and a GPU that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import optc
from optc.cli.main import run
from optc.errors import InputError, UnavailableError
from optc.proof.reference.execution.device import check_device, device_now, running_on


def test_the_device_is_that_of_the_innermost_block() -> None:
    assert device_now() == "cpu"
    with running_on("cuda"):
        assert device_now() == "cuda"
        with running_on("cpu"):
            assert device_now() == "cpu"
        assert device_now() == "cuda"
    assert device_now() == "cpu"


def test_the_cpu_is_always_there_and_a_gpu_where_pytorch_finds_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_device("cpu", "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_device("cuda", "run")


@pytest.mark.parametrize(
    ("cuda", "reason"), [("12.8", ""), (None, r": PyTorch \S+ is built without CUDA")]
)
def test_a_gpu_that_is_not_there(
    cuda: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    message = rf"--device: PyTorch finds no GPU{reason} \(leave --device out to run on the CPU\)$"
    with pytest.raises(UnavailableError, match=message):
        check_device("cuda", "run")


def test_a_compile_for_a_gpu_that_is_not_there_ends_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pycode, output = "examples/models/pycode", tmp_path / "out"
    code = run(["compile", pycode, "--device", "cuda", "-o", str(output)])
    assert code == UnavailableError.exit_code == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "PyTorch finds no GPU" in said
    assert "leave --device out to calibrate and judge on the CPU" in said
    assert not output.exists()


def test_a_compile_runs_in_a_block_of_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optc.compiling.text import compile as compile_text

    seen = []

    def resolve(*given: object) -> None:
        seen.append(device_now())
        raise UnavailableError("enough was seen")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compile_text, "resolve_options", resolve)
    for device in ("cuda", "cpu"):
        with pytest.raises(UnavailableError, match="enough"):
            optc.compile("examples/models/pycode", device=device, output=tmp_path / "out")
    assert seen == ["cuda", "cpu"]
    assert device_now() == "cpu"


def test_a_device_that_is_no_choice_is_refused() -> None:
    message = r"^device: 'gpu' is not possible \(one of cpu, cuda\)$"
    with pytest.raises(InputError, match=message):
        optc.compile("examples/models/pycode", device="gpu")
