from __future__ import annotations

import struct
from pathlib import Path

import pytest

from optc.backends.tensorrt.header import SIZE, check_header, parse_header, read_header
from optc.errors import ArtifactError, UnavailableError


def _bytes(size: int = SIZE, mask: int = 0x8, version: tuple[int, ...] = (1, 7, 1, 116)) -> bytes:
    head = b"vtrt".ljust(16, b"\0") + struct.pack("<Q4B4sI", size, *version, b"vtrt", mask)
    return head.ljust(SIZE, b"\0")


def test_version_and_gpus_are_read() -> None:
    header = parse_header(_bytes(mask=0x02 | 0x08 | 0x10), "engine")
    assert header.version == (1, 7, 1, 116)
    assert header.release == "1.7.1"
    assert header.architectures == ("sm_80", "sm_89", "sm_120")
    assert header.gpus == "SM80+SM89+SM120"


@pytest.mark.parametrize("data", [b"", b"vtrt", b"GGUF".ljust(SIZE, b"\0")])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"engine\.trt: the file is no TensorRT-RTX engine"):
        parse_header(data, "engine.trt")


def test_a_truncated_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.trt"
    path.write_bytes(_bytes(size=4096))
    with pytest.raises(ArtifactError, match="has 64 bytes where its header says 4096"):
        read_header(path)
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        read_header(tmp_path / "absent")


def test_an_engine_of_another_release_is_refused_before_it_is_loaded() -> None:
    header = parse_header(_bytes(version=(1, 6, 1, 20)), "engine")
    with pytest.raises(UnavailableError, match=r"built by TensorRT-RTX 1\.6\.1, installed is 1\.7"):
        check_header(header, "1.7.1.116", "sm_89", "engine")


def test_an_engine_for_other_gpus_is_refused_with_both_named() -> None:
    header = parse_header(_bytes(mask=0x02 | 0x08), "engine")
    check_header(header, "1.7.1.99", "sm_89", "engine")
    check_header(header, "1.7.1.116", "", "engine")
    with pytest.raises(UnavailableError, match=r"built for SM80\+SM89, the GPU here is SM120"):
        check_header(header, "1.7.1.116", "sm_120", "engine")
