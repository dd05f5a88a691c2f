"""Building the engines of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.artifact.manifest import Source
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions, SharedWeights
from optc.compiling.building.built_engine import (
    EngineBuilder,
    engine_of,
    shared_weights,
    weight_copies,
    weight_readers,
)
from optc.compiling.resolving.engines import EngineTarget, name_engines
from tests.support.models import Dense, dense_model
from tests.support.stub import StubBackend

Backends = dict[str, StubBackend]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ArtifactWriter]:
    with ArtifactWriter(tmp_path / "a") as made:
        yield made


@pytest.fixture
def model() -> ir.Model:
    return dense_model(Dense(windows=(0,)))


def options(request: EngineTarget) -> BuildOptions:
    return BuildOptions(max_context=32)


def test_each_engine_has_its_folder_and_entry(
    backends: Backends, writer: ArtifactWriter, model: ir.Model
) -> None:
    requests = name_engines("tvm:x86-64-v3,tvm,aot:sm_89", None, "tvm")
    source = Source("small", "00", "llama", {})
    built = EngineBuilder(writer, requests, source).build_all("draft", model, options)
    names = ["draft-tvm-x86-64-v3", "draft-tvm-native", "draft-aot-sm_89"]
    assert [b.entry.name for b in built] == names
    for one, request in zip(built, requests, strict=True):
        assert (one.request, one.entry.target) == (request, request.target)
        assert (one.entry.role, one.entry.source) == ("draft", source)
        assert one.entry.folder == f"engines/{one.entry.name}"
        assert one.entry.spec.max_context == 32
        for name in one.entry.files:
            assert (writer.folder / one.entry.folder / name).is_file()
        assert one.seconds >= 0


def test_weights_are_written_once_where_they_fit(
    backends: Backends, writer: ArtifactWriter, model: ir.Model
) -> None:
    requests = name_engines("tvm:x86-64-v3,aot:sm_89,tvm", None, "tvm")
    built = EngineBuilder(writer, requests).build_all("target", model, options)
    folders = [b.weights.folder for b in built]
    assert folders == ["../tvm-x86-64-v3", "../aot-sm_89", "../tvm-x86-64-v3"]
    assert [o.shared for _, o in backends["tvm"].built] == [None, built[0].weights]
    assert shared_weights(built, requests[1]) is None
    assert shared_weights([], requests[0]) is None
    targets = [request.target for request in requests]
    assert [o.readers for _, o in backends["tvm"].built] == [(targets[2],), (targets[0],)]
    assert weight_readers(requests, requests[1]) == ()
    assert weight_copies(requests) == 2
    assert weight_copies(requests[:1]) == 1


def test_weights_that_are_given_go_before_those_of_an_earlier_engine(
    backends: Backends, writer: ArtifactWriter, model: ir.Model
) -> None:
    given = SharedWeights("../elsewhere", {})
    requests = name_engines("tvm:x86-64-v3,tvm", None, "tvm")
    built = EngineBuilder(writer, requests).build_all(
        "self", model, lambda request: BuildOptions(max_context=32, shared=given)
    )
    assert [b.weights for b in built] == [given, given]


def test_each_build_may_change_its_model(
    backends: Backends, writer: ArtifactWriter, model: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ir.Model] = []
    real = StubBackend.build

    def build(self, model, *rest):  # type: ignore[no-untyped-def]
        assert "built" not in model.metadata_props
        model.metadata_props["built"] = "yes"
        seen.append(model)
        return real(self, model, *rest)

    monkeypatch.setattr(StubBackend, "build", build)
    requests = name_engines("tvm:x86-64-v3,tvm", None, "tvm")
    EngineBuilder(writer, requests).build_all("target", model, options)
    assert seen[0] is not model
    assert seen[1] is model, "the last one needs no copy"


def test_names_of_engines_by_role(backends: Backends) -> None:
    (sole,) = name_engines("tvm", None, "tvm")
    first, _ = name_engines("tvm,aot:sm_89", None, "tvm")
    assert [engine_of(role, sole) for role in ("target", "draft")] == ["target", "draft"]
    assert [engine_of(role, first) for role in ("target", "draft")] == [
        "tvm-native",
        "draft-tvm-native",
    ]
