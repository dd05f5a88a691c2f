"""The source of an artifact is found again, with dimensions as they were bounded for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optc.compiling.tensors import verify
from optc.errors import InputError
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.system.sources.dim import Dim
from optc.system.sources.tensor_source import TensorSource
from tests.artifact.toy import toy_spec

FLOAT = TensorSpec("x", "float32", ("batch", 4))
BOUNDED = TensorsInterface((FLOAT,), (FLOAT,), {"batch": DimRange(1, 8)})
DIMS = [Dim("batch", 1, 8)]


def artifact(interface: Any = BOUNDED) -> Any:
    """One that was compiled from what has the digest ``compiled``."""
    source, engine = SimpleNamespace(digest="compiled"), SimpleNamespace(interface=interface)
    manifest = SimpleNamespace(source=source, engines=[engine])
    return SimpleNamespace(path="a", manifest=manifest)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TensorSource]:
    """The sources that were imported; what was compiled has bounds, or is called so."""
    sources: list[TensorSource] = []

    def import_tensors(source: TensorSource) -> Any:
        sources.append(source)
        same = list(source.dims) == DIMS or "same" in str(source.model)
        return SimpleNamespace(digest="compiled" if same else "other")

    monkeypatch.setattr("optc.importer.tensors.open.import_tensors", import_tensors)
    return sources


def test_a_source_as_it_is(asked: list[TensorSource]) -> None:
    for name in ("same.onnx", "same"):
        assert verify._source(artifact(), Path(name)).digest == "compiled"
    assert [list(one.dims) for one in asked] == [[], []], "nothing is imported twice"


def test_a_graph_whose_dimensions_were_bounded(asked: list[TensorSource]) -> None:
    assert verify._source(artifact(), Path("graph.onnx")).digest == "compiled"
    assert [list(one.dims) for one in asked] == [[], DIMS]


@pytest.mark.parametrize(
    ("name", "interface", "imports"),
    [("module", BOUNDED, 1), ("graph.onnx", toy_spec(), 2)],
)
def test_another_source_is_refused(
    asked: list[TensorSource], name: str, interface: Any, imports: int
) -> None:
    with pytest.raises(InputError, match=f"{name}: is not what a was compiled from"):
        verify._source(artifact(interface), Path(name))
    assert len(asked) == imports
