"""Engines refuse a spec or weights that they were not compiled for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from optc.backends.tvm import BACKEND
from optc.backends.tvm.engine_data import read_data
from optc.backends.tvm.fingerprint import WORDS, fingerprint
from optc.backends.tvm.loaded import loader
from optc.backends.tvm.program import Tensor
from optc.errors import ArtifactError
from tests.artifact.toy import toy_spec
from tests.backends.tvm.engine_driver import Engine

WEIGHTS = [Tensor("a", "int8", (4, 2)), Tensor("b", "float32", (8,))]


def test_it_is_of_spec_weights_and_arguments() -> None:
    mine = fingerprint(toy_spec(), WEIGHTS)
    assert len(mine) == WORDS
    assert mine == fingerprint(toy_spec(), list(WEIGHTS))
    others = [
        fingerprint(structs.replace(toy_spec(), vocab_size=17), WEIGHTS),
        fingerprint(toy_spec(), WEIGHTS[::-1]),
        fingerprint(toy_spec(), WEIGHTS[:1]),
        fingerprint(toy_spec(), [replace(WEIGHTS[0], shape=(2, 4)), WEIGHTS[1]]),
        fingerprint(toy_spec(), [replace(WEIGHTS[0], dtype="uint8"), WEIGHTS[1]]),
    ]
    assert len({mine, *others}) == len(others) + 1


@pytest.mark.parametrize(
    "change",
    [{"vocab_size": 1}, {"max_rows": 2**31 - 1}, {"block_multiple": 1}, {"tree": True}],
    ids=lambda change: next(iter(change)),
)
def test_another_spec_is_refused(engines: Callable[[str], Engine], change: dict[str, Any]) -> None:
    engine = engines("fp32")
    with pytest.raises(ArtifactError, match=r"engine\.so: the manifest describes another engine"):
        BACKEND.load(
            engine.folder,
            structs.replace(engine.build.spec, **change),
            engine.build.backend_data,
            1,
        )


def test_other_weights_are_refused(engines: Callable[[str], Engine]) -> None:
    engine = engines("fp32")
    data = copy.deepcopy(engine.build.backend_data)
    shape = data["weights"][-1]["shape"]
    data["weights"][-1]["shape"] = [shape[0] // 2, *shape[1:]]  # kernels would read beyond it
    read_data(data)
    with pytest.raises(ArtifactError, match="the manifest describes another engine"):
        BACKEND.load(engine.folder, engine.build.spec, data, 1)


def test_an_engine_without_one_is_refused(
    engines: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "FINGERPRINT", "no_such_kernel")
    with pytest.raises(
        ArtifactError,
        match=r"engine\.so: the engine has no kernel 'no_such_kernel': another optc compiled it "
        r"\(compile the artifact again\)",
    ):
        engines("fp32").load()
