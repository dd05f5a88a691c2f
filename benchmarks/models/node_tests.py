"""Node tests of the onnx package through import and general passes, beside ONNX Runtime alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx.backend.test.loader import load_model_tests

from optc.errors import OptcError
from optc.importer.tensors.onnx_source import import_onnx, read_onnx
from optc.passes.general.simplify import Simplify


@dataclass
class NodeTests:
    """The outcome of the tests.

    Attributes:
        direct: Names of those that ONNX Runtime passes as they are.
        through: Names of those that pass behind import and passes.
        no_artifact: Of those, why an artifact takes no such inputs or outputs, by name: texts,
            sequences, and models without inputs.
        lost: Of those that pass directly alone, the reason by name.
        total: All tests.
    """

    direct: list[str] = field(default_factory=list)
    through: list[str] = field(default_factory=list)
    no_artifact: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    total: int = 0

    def to_json(self) -> dict[str, Any]:
        """For results."""
        return {
            "tests": self.total,
            "direct": len(self.direct),
            "through": len(self.through),
            "no_artifact": len(self.no_artifact),
            "lost": dict(sorted(self.lost.items())),
        }


def run_node_tests(pattern: str = "", kind: str = "node") -> NodeTests:
    """Run every test of a kind whose name ``pattern`` is found in."""
    found = NodeTests()
    for case in load_model_tests(kind=kind):
        if not re.search(pattern, case.name):
            continue
        found.total += 1
        model = _model(case)
        data = list(_data(case, model))
        if not data or _failure(model, data, case):
            continue
        found.direct.append(case.name)
        reason = _through(model, data, case)
        if reason:
            found.lost[case.name] = reason
        else:
            found.through.append(case.name)
            if reason := _no_artifact(model, case.name):
                found.no_artifact[case.name] = reason
    return found


def _model(case: Any) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    return onnx.load(Path(case.model_dir) / "model.onnx")


def _data(case: Any, model: onnx.ModelProto) -> Iterator[tuple[Mapping[str, Any], Sequence[Any]]]:
    names = [value.name for value in model.graph.input]
    for inputs, outputs in case.data_sets or _stored(case, model):
        given = (np.asarray(one) if isinstance(one, np.generic) else one for one in inputs)
        yield dict(zip(names, given, strict=False)), outputs


def _stored(case: Any, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Data of a test that lies in files."""
    if case.model_dir is None:
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        sides = []
        for side in ("input", "output"):
            files = sorted(
                folder.glob(f"{side}_*.pb"), key=lambda one: int(one.stem[len(side) + 1 :])
            )
            sides.append([onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files])
        yield sides[0], sides[1]


def _failure(
    model: onnx.ModelProto, data: Sequence[tuple[Mapping[str, Any], Sequence[Any]]], case: Any
) -> str:
    """Empty if ONNX Runtime gives the outputs of a test."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        for inputs, wanted in data:
            found = session.run(None, dict(inputs))
            for ours, theirs in zip(found, wanted, strict=True):
                if not _equal(ours, theirs, case):
                    return "other numbers"
    except Exception as error:  # noqa: BLE001 - ONNX Runtime and its binding raise many kinds
        return _first_line(error)
    return ""


def _through(
    model: onnx.ModelProto, data: Sequence[tuple[Mapping[str, Any], Sequence[Any]]], case: Any
) -> str:
    try:
        graph = read_onnx(model, case.name)
        Simplify().run(graph)
        proto = ir.to_proto(graph)
    except Exception as error:  # noqa: BLE001 - what refuses a model is what is counted here
        return _first_line(error)
    return _failure(proto, data, case)


def _no_artifact(model: onnx.ModelProto, name: str) -> str:
    """Empty if the interface of a model is one that artifacts have."""
    try:
        import_onnx(model, name)
    except OptcError as error:
        return error.message
    return ""


def _equal(ours: Any, theirs: Any, case: Any) -> bool:
    if isinstance(ours, list) or isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and isinstance(theirs, list)
            and len(ours) == len(theirs)
            and all(_equal(a, b, case) for a, b in zip(ours, theirs, strict=True))
        )
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    return bool(
        np.allclose(a, b, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-7), equal_nan=True)
    )


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
