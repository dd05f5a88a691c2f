"""Facts about this machine and versions of packages."""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version

import pytest

from optc.compiling.resolving import machine
from optc.compiling.resolving.machine import machine_facts, package_versions


def test_versions_are_those_of_the_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_versions()["numpy"] == version("numpy")
    assert {"optc", "onnx-ir", "onnxruntime", "tokenizers", "torch"} <= set(package_versions())

    def without_torch(name: str) -> str:
        if name == "torch":
            raise PackageNotFoundError(name)
        return f"{name} 1"

    monkeypatch.setattr(machine, "version", without_torch)
    found = package_versions()
    assert "torch" not in found
    assert found["onnx"] == "onnx 1"


def test_facts_are_json_and_of_this_machine() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["features"] == sorted(facts["features"])
    assert 1 <= facts["threads"] <= (os.cpu_count() or 1)
    with open("/proc/meminfo") as file:
        kilobytes = int(file.readline().split()[1])
    assert abs(facts["memory_bytes"] - 1024 * kilobytes) < 1 << 20
    assert facts["system"] == os.uname().sysname
    assert facts["kernel"] == os.uname().release
